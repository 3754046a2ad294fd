"""torch's fused optimizer steps, which are kernels of ATen's without a shape rule, in plain ops.

Captures follow these functions in the place of the originals (src/python/capture/natives.cpp), by
the names that they have there; the loops of a group's parameters are then fused as those of any
other step. Each computes in the order of ATen's kernel and in its precision: parameters of half
precision are widened, numbers of a step are float64. Nothing changes where `found_inf` is 1.

The kernels walk over memory, whatever the strides: where that pairs a parameter's elements with
others of its gradient, they are called, so that the step gives what it gives in eager.
"""

import torch

_HALVES = (torch.bfloat16, torch.float16)


def _is_dense(t):
    reach = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
    return t.numel() == 0 or reach + 1 == t.numel()


def _pairs_elements(params, *lists):
    """Whether a walk over memory meets the same element in a parameter and its other tensors."""
    alike = (p.stride() == t.stride() for tensors in lists for p, t in zip(params, tensors))
    return all(alike) and all(_is_dense(p) for p in params)


def _wide(t):
    return t.float() if t.dtype in _HALVES else t


def _put(target, value, keep):
    if keep is not None:
        value = torch.where(keep, _wide(target), value)
    target.copy_(value)


def _number(lr):
    return lr.double() if isinstance(lr, torch.Tensor) else lr


def _gradient(grad, grad_scale, maximize, keep):
    """What a step goes by; a gradient that was scaled is left unscaled, as by the kernels."""
    value = _wide(grad)
    if grad_scale is not None:
        value = value / grad_scale
        _put(grad, value, keep)
    return -value if maximize else value


def _kept(found_inf):
    return None if found_inf is None else found_inf == 1


def _fused_sgd_(self, grads, momentum_buffer_list, **settings):
    # Of half precision the kernel leaves most elements as they are.
    halves = any(p.dtype in _HALVES for p in self)
    if halves or not _pairs_elements(self, grads, momentum_buffer_list):
        return torch.ops.aten._fused_sgd_(self, grads, momentum_buffer_list, **settings)
    _sgd(self, grads, momentum_buffer_list, **settings)


def _sgd(
    params,
    grads,
    buffers,
    *,
    weight_decay,
    momentum,
    lr,
    dampening,
    nesterov,
    maximize,
    is_first_step,
    grad_scale=None,
    found_inf=None,
):
    keep = _kept(found_inf)
    rate = _number(lr)
    for i, param in enumerate(params):
        value = param
        grad = _gradient(grads[i], grad_scale, maximize, keep)
        if weight_decay != 0:
            grad = grad + value * weight_decay
        if momentum != 0:
            buffer = grad
            if not is_first_step:
                buffer = buffers[i] * momentum + grad * (1 - dampening)
            _put(buffers[i], buffer, keep)
            grad = grad + buffer * momentum if nesterov else buffer
        _put(param, value - grad * rate, keep)


def _fused_adagrad_(self, grads, state_sums, state_steps, **settings):
    if not _pairs_elements(self, grads, state_sums):
        return torch.ops.aten._fused_adagrad_(self, grads, state_sums, state_steps, **settings)
    _adagrad(self, grads, state_sums, state_steps, **settings)


def _adagrad(
    params,
    grads,
    state_sums,
    state_steps,
    *,
    lr,
    lr_decay,
    weight_decay,
    eps,
    maximize,
    grad_scale=None,
    found_inf=None,
):
    keep = _kept(found_inf)
    rate = _number(lr)
    for i, param in enumerate(params):
        value = _wide(param)
        grad = _gradient(grads[i], grad_scale, maximize, keep)
        if weight_decay != 0:
            grad = grad + value * weight_decay
        step_size = rate / (1 + (state_steps[i].double() - 1) * lr_decay)
        total = _wide(state_sums[i]) + grad * grad
        _put(state_sums[i], total, keep)
        _put(param, value - step_size * grad / (total.sqrt() + eps), keep)


def _moved(start, end, kept):
    """`start.lerp(end, 1 - kept)`. Of a number that varies, `kept` itself is compared."""
    weight = 1 - kept
    if kept > 0.5:
        return start + weight * (end - start)
    return end - (end - start) * (1 - weight)


def _adam(
    decoupled,
    params,
    grads,
    averages,
    squares,
    largest,
    state_steps,
    *,
    lr,
    beta1,
    beta2,
    weight_decay,
    eps,
    amsgrad,
    maximize,
    grad_scale=None,
    found_inf=None,
):
    keep = _kept(found_inf)
    rate = _number(lr)
    for i, param in enumerate(params):
        value = _wide(param)
        grad = _gradient(grads[i], grad_scale, maximize, keep)
        step = state_steps[i].double()
        if weight_decay != 0:
            if decoupled:
                value = value * (1 - rate * weight_decay)
            else:
                grad = grad + value * weight_decay
        average = _moved(_wide(averages[i]), grad, beta1)
        square = _wide(squares[i]) * beta2 + (1 - beta2) * grad * grad
        _put(averages[i], average, keep)
        _put(squares[i], square, keep)
        if amsgrad:
            square = torch.maximum(_wide(largest[i]), square)
            _put(largest[i], square, keep)
        step_size = rate / (1 - beta1**step)
        denominator = square.sqrt() / (1 - beta2**step).sqrt() + eps
        _put(param, value - step_size * (average / denominator), keep)


def _fused_adam_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, **settings):
    lists = self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs
    if not _pairs_elements(*lists):
        return torch.ops.aten._fused_adam_(*lists, state_steps, **settings)
    _adam(False, *lists, state_steps, **settings)


def _fused_adamw_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, **settings):
    lists = self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs
    if not _pairs_elements(*lists):
        return torch.ops.aten._fused_adamw_(*lists, state_steps, **settings)
    _adam(True, *lists, state_steps, **settings)
