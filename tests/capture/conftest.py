def pytest_addoption(parser):
    parser.addoption(
        "--every-break", action="store_true", help="break in front of every instruction, not some"
    )
