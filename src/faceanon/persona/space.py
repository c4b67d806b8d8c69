"""Identity codes in numpy: as `networks.identity_space.IdentitySpace`, which explains them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from faceanon.persona.cells import Array


class CodeSpace:
    """Codes of persons, and the turns that a key makes in them.

    Args:
        arrays: The buffers of an `IdentitySpace` by name.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.mean = arrays["mean"]
        self.basis = arrays["basis"]
        self.scale = arrays["scale"]
        self.kept_basis = arrays["kept_basis"]
        self.free_basis = arrays["free_basis"]

    def code(self, embedding: Array) -> Array:
        """Embeddings `(B, E)` of unit length -> codes `(B, N)`."""
        code: Array = (embedding - self.mean) @ self.basis.T / self.scale
        return code

    def with_kept(self, code: Array, values: Array) -> Array:
        """Codes `(B, N)` whose first k kept coordinates are `values` `(B, k)`."""
        basis = self.kept_basis[:, : values.shape[1]]
        mixed: Array = code + (values - code @ basis) @ basis.T
        return mixed

    def like(self, code: Array, other: Array) -> Array:
        """Codes `(B, N)` with sex, age, skin, and what else a turn keeps, of other codes."""
        return self.with_kept(code, other @ self.kept_basis)

    def mixed(self, code: Array, other: Array) -> Array:
        """Sex, age and skin of `code`, all else of `other`; both `(B, N)`."""
        mixed: Array = code @ self.kept_basis @ self.kept_basis.T + other @ self.free_basis @ self.free_basis.T
        return mixed

    def anybody(self, code: Array) -> Array:
        """Codes `(B, N)` that say sex, age and skin alone."""
        nobody: Array = code - code @ self.free_basis @ self.free_basis.T
        return nobody

    def turned(self, code: Array, keys: Array, inverse: bool = False) -> Array:
        """Codes `(B, N)` of other persons, of the same length: turned by 90 degrees where they are free.

        Args:
            code: `(B, N)`.
            keys: `(B, F, F)` of independent standard normal numbers, F the free directions.
            inverse: Turn back.
        """
        # The orthogonal factor of a normal matrix is a random frame; float64 keeps it the same on every machine.
        frame = np.linalg.qr(keys.astype(np.float64))[0].astype(np.float32)
        kept = code @ self.kept_basis @ self.kept_basis.T
        free = np.einsum("bi,bij->bj", code @ self.free_basis, frame)
        pairs = free.reshape(len(free), -1, 2)
        # In the key's frame every pair of axes is turned by 90 degrees: (x, y) becomes (-y, x).
        quarter = np.stack([-pairs[..., 1], pairs[..., 0]], -1).reshape(len(free), -1)
        if inverse:
            # Two turns by 90 degrees make -1, so the turn back is the negative turn.
            quarter = -quarter
        turned: Array = kept + np.einsum("bi,bji->bj", quarter, frame) @ self.free_basis.T
        return turned
