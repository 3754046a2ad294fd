"""The wheel: put together of the libraries that are built here, installed into an environment of
its own, where it compiles a model or says in a sentence why it cannot be imported."""

import email
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
import torch

import oxyfuel

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(oxyfuel.__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
MINOR = ".".join(torch.__version__.split(".")[:2])

pytestmark = pytest.mark.skipif(
    PACKAGE != ROOT / "python" / "oxyfuel", reason="an extension that is not for users"
)


def run(*command, **options):
    return subprocess.run(command, text=True, capture_output=True, timeout=600, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Its path."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(folder)]
    for setting in (f"build-dir={folder}/build", f"cmake.define.OXYFUEL_BUILT={PACKAGE}"):
        options += ["--config-settings", setting]
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    made = run(
        sys.executable, "-m", "pip", "wheel", *options, str(ROOT), env={**os.environ, "PATH": path}
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (found,) = folder.glob("*.whl")
    return found


class Environment:
    """One with the wheel and links to the packages that there are here; nothing else is seen from
    it: no compiler, no home, no folder for scratch files."""

    def __init__(self, folder, wheel):
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        (site,) = (folder / "venv").glob("lib/python3*/site-packages")
        self.package = site / "oxyfuel"
        for folder in filter(lambda p: p.endswith("-packages"), sys.path):
            for package in pathlib.Path(folder).iterdir():
                link = site / package.name
                if not package.name.startswith("oxyfuel") and not link.exists():
                    link.symlink_to(package)
        made = run(
            sys.executable, "-m", "pip", "--python", self.python, "install", "--no-index", wheel
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def run(self, *arguments, **variables):
        environment = {"PATH": "/nowhere", "TMPDIR": "/nowhere", **variables}
        return run(self.python, *arguments, env=environment, cwd="/")

    def why_not(self):
        """What importing says, as one line of an ImportError."""
        result = self.run("-c", "import oxyfuel")
        assert result.returncode == 1, result.stdout + result.stderr
        last = result.stderr.splitlines()[-1]
        assert last.startswith("ImportError: Oxyfuel cannot be imported: "), result.stderr
        return last


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheel):
    return Environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def spoiled(environment):
    """The environment, its package whole again afterwards."""
    kept = environment.package.with_name("kept")
    shutil.copytree(environment.package, kept, copy_function=os.link)
    yield environment
    shutil.rmtree(environment.package)
    kept.rename(environment.package)


def test_what_is_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(file.file_size for file in archive.infolist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        required = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist")
    assert {f"oxyfuel/_C{SUFFIX}", "oxyfuel/liboxyfuel_core.so"} < set(names)
    assert not [name for name in names if not name.startswith("oxyfuel")]
    assert wheel.stat().st_size < 35e6 and installed < 110e6
    major, minor = MINOR.split(".")
    assert [r.replace(" ", "") for r in required] == [f"torch<{major}.{int(minor) + 1},>={MINOR}"]
    python, abi, platform = wheel.stem.split("-")[2:]
    assert python == abi == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert platform == "linux_" + os.uname().machine or platform.startswith("manylinux_2_")


def test_the_demos_smallest_model(environment):
    result = environment.run(ROOT / "examples" / "demo.py", "mlp", OXYFUEL_TRACE="")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "\nmlp " in result.stdout


def test_compiles_in_process(environment):
    if not (PACKAGE / "liboxyfuel_clang.so").exists():
        pytest.skip("built without the Clang library")
    code = """if True:
        import oxyfuel, torch
        print(oxyfuel.__file__)
        x = torch.linspace(-1, 1, 1000)
        f = lambda x: torch.sin(x) * 2 + torch.softmax(x, 0)
        with torch.no_grad():
            torch.testing.assert_close(oxyfuel.compile(f)(x), f(x))
        print(oxyfuel.stats()["kernels"])
        oxyfuel.show_config()
    """
    result = environment.run("-c", code, OXYFUEL_STRICT="1")
    assert result.returncode == 0, result.stderr
    file, kernels, *config = result.stdout.splitlines()
    assert pathlib.Path(file).parent == environment.package
    assert int(kernels) > 0
    assert any(line.startswith("compiler: clang") and "in process" in line for line in config)


def test_torch_compile_finds_it(environment):
    code = """if True:
        import torch
        with torch.no_grad():
            f = torch.compile(lambda x: x + 1, backend="oxyfuel")
            print(f(torch.zeros(2)).tolist())
    """
    result = environment.run("-c", code, OXYFUEL_STRICT="1")
    assert result.stdout == "[1.0, 1.0]\n", result.stderr


def replace(path, content):
    """Another file in its place: the old one has other names."""
    path.unlink()
    path.write_bytes(content)


def test_another_torch(spoiled):
    replace((spoiled.package / f"_C{SUFFIX}").with_suffix(".torch"), b"2.1.0")
    said = spoiled.why_not()
    assert "built for torch 2.1, " in said and f"this is torch {torch.__version__}" in said


def test_another_patch_level_of_torch(spoiled):
    replace((spoiled.package / f"_C{SUFFIX}").with_suffix(".torch"), f"{MINOR}.99".encode())
    assert spoiled.run("-c", "import oxyfuel").returncode == 0


def test_another_python(spoiled):
    extension = spoiled.package / f"_C{SUFFIX}"
    extension.rename(spoiled.package / "_C.cpython-39-x86_64-linux-gnu.so")
    said = spoiled.why_not()
    assert "no extension for Python 3." in said and "_C.cpython-39-" in said


def test_a_torch_with_other_symbols(spoiled):
    """As one with another ABI of C++ has them."""
    extension = spoiled.package / f"_C{SUFFIX}"
    content = extension.read_bytes()
    assert b"_ZN3c106detail14torchCheckFail" in content
    replace(
        extension,
        content.replace(b"_ZN3c106detail14torchCheckFail", b"_ZN3c106detail14torchCheckFai1"),
    )
    said = spoiled.why_not()
    assert "built from source with other flags?" in said and "undefined symbol" in said


def test_a_missing_core(spoiled):
    (spoiled.package / "liboxyfuel_core.so").unlink()
    said = spoiled.why_not()
    assert "liboxyfuel_core.so" in said and "other flags" not in said


def test_a_missing_clang(spoiled):
    (spoiled.package / "liboxyfuel_clang.so").unlink(missing_ok=True)
    code = """if True:
        import oxyfuel, torch
        with torch.no_grad():
            print(oxyfuel.compile(lambda x: x + 1)(torch.zeros(2)).tolist())
        oxyfuel.show_config()
    """
    result = spoiled.run("-c", code)
    assert result.returncode == 0 and result.stdout.startswith("[1.0, 1.0]\n"), result.stderr
    (compiler,) = (line for line in result.stdout.splitlines() if line.startswith("compiler: "))
    assert compiler.startswith("compiler: none: ") and "liboxyfuel_clang.so" in compiler
