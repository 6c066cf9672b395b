"""Attention without a mask against the dense one, on a GPU; where documents begin, anywhere."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.runtime
torch = pytest.importorskip("torch")
CASES = [  # query heads, key heads, head size, size of values, window
    (8, 2, 128, 128, 0),
    (8, 8, 192, 128, 0),
    (8, 2, 64, 64, 100),
]


def test_documents_begin_where_the_number_changes() -> None:
    from prlc.runtime.trainer.varlen import bounds

    found = bounds(torch.tensor([[0, 0, 0, 1, -1], [1, 1, 2, 2, 2]]))
    assert found.starts.tolist() == [0, 3, 4, 5, 7, 10]
    assert found.longest == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("heads", "keys", "size", "value", "window"), CASES)
def test_outputs_sums_and_gradients_equal_the_dense_ones(
    heads: int, keys: int, size: int, value: int, window: int
) -> None:
    from prlc.runtime.trainer.attention import Visibility, attend
    from prlc.runtime.trainer.varlen import attend_documents, bounds

    torch.manual_seed(0)
    documents = torch.tensor([[0] * 300 + [1] * 500 + [-1] * 224, [2] * 1000 + [3] * 24], device="cuda")
    q, k, v = (
        torch.randn(2, 1024, n, h, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for n, h in ((heads, size), (keys, size), (keys, value))
    )
    grad = torch.randn(2, 1024, heads, value, device="cuda", dtype=torch.bfloat16)
    mask = Visibility(documents).mask(1024, window)
    exact, sums = attend(q.float(), k.float(), v.float(), mask, None, True)
    wanted = torch.autograd.grad(exact, (q, k, v), grad.float())
    out, found = attend_documents(q, k, v, bounds(documents), window, None, True)
    got = torch.autograd.grad(out, (q, k, v), grad)
    for a, b in ((out, exact), *zip(got, wanted, strict=True)):
        assert (
            float((a.detach().float() - b.detach().float()).norm() / b.detach().float().norm()) < 0.01
        )  # bf16 has 8 bits
    assert float((found - sums).abs().max()) < 0.02
