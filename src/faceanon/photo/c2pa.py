"""C2PA: a signed manifest that says that trained algorithms made a part of a file. It tells who signs, and no more."""

from __future__ import annotations

import importlib.util
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from PIL import Image

from faceanon import __version__
from faceanon.errors import UserError
from faceanon.files import read_small
from faceanon.photo.mark import SOURCE_TYPE

# No thumbnail of what is signed, and no network, not even where a file asks for it.
SETTINGS = {"builder": {"thumbnail": {"enabled": False}}, "verify": {"remote_manifest_fetch": False}}
# Not `c2pa.edited`: it stands only behind `c2pa.opened`, which names the original.
ACTION = {"action": "c2pa.created", "digitalSourceType": SOURCE_TYPE}
MANIFEST = {
    "claim_generator_info": [{"name": "faceanon", "version": __version__}],
    "assertions": [{"label": "c2pa.actions.v2", "data": {"actions": [ACTION]}}],
}
CURVES = {"secp256r1": "es256", "secp384r1": "es384", "secp521r1": "es512"}
KINDS = CURVES | {"RSAPrivateKey": "ps256", "Ed25519PrivateKey": "ed25519"}
MOST_BYTES = 1_000_000  # of certificates, and of a key
_STORE = UUID("63327061-0011-0010-8000-00aa00389b71").bytes  # at the head of each manifest, as it lies in a picture


@dataclass(frozen=True)
class Credentials:
    """What signs.

    Args:
        chain: Certificates in PEM, that of the key first.
        key: Private key in PEM (PKCS #8).
        algorithm: C2PA's name of the signature.
    """

    chain: bytes
    key: bytes = field(repr=False)
    algorithm: str

    def sign(self, source: BinaryIO, target: BinaryIO, path: Path) -> None:
        """Write what is to become `path`, complete in `source`, with a manifest to `target`.

        Raises:
            UserError: If C2PA cannot sign it.
        """
        import c2pa

        # No address of a clock: the signature has no time.
        info = c2pa.C2paSignerInfo(self.algorithm, self.chain, self.key, None)
        try:
            with c2pa.Context.from_dict(SETTINGS) as context, c2pa.Signer.from_info(info) as signer:
                c2pa.Builder(MANIFEST, context=context).sign(signer, path.suffix[1:].lower(), source, target)
        except c2pa.C2paError as error:
            raise UserError(f"cannot sign {path}: {str(error).removeprefix('Signature: ')}") from error

    def signed(self, data: bytes, path: Path) -> bytes:
        """The bytes of a file with a manifest; raises as `sign` does."""
        target = io.BytesIO()
        self.sign(io.BytesIO(data), target, path)
        return target.getvalue()


def read_credentials(certificates: Path, key: Path) -> Credentials:
    """What signs, from PEM files, tried out on a picture of one pixel.

    Raises:
        UserError: If the package is missing, a file is none of its kind, or they do not fit each other or C2PA.
    """
    if not _installed():
        raise UserError("--c2pa needs the package c2pa-python: pip install 'faceanon[c2pa]'")
    # Here, since they take a while, and few sign.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as form

    try:
        chain = x509.load_pem_x509_certificates(read_small(certificates, MOST_BYTES, str(certificates)))
    except ValueError:
        raise UserError(f"{certificates} holds no certificates in PEM; give the signer's chain") from None
    try:
        secret = form.load_pem_private_key(read_small(key, MOST_BYTES, str(key)), None)
    except TypeError:
        raise UserError(f"{key} is protected by a passphrase; give a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(f"{key} holds no private key in PEM") from None
    if secret.public_key() != chain[0].public_key():
        raise UserError(f"{key} does not fit the first certificate of {certificates}; put the key's own first")
    kind = getattr(getattr(secret, "curve", None), "name", type(secret).__name__)
    if kind not in KINDS:
        raise UserError(f"C2PA takes no key such as {key}; give one of P-256, P-384, P-521, RSA or Ed25519")
    pem = secret.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    whole = b"".join(certificate.public_bytes(form.Encoding.PEM) for certificate in chain)
    credentials = Credentials(whole, pem, KINDS[kind])
    picture = io.BytesIO()
    Image.new("RGB", (1, 1)).save(picture, "PNG")
    try:
        credentials.signed(picture.getvalue(), Path("a.png"))
    except UserError as error:
        raise UserError(f"C2PA does not accept {certificates}: {str(error).partition(': ')[2]}") from None
    return credentials


def is_signed(picture: bytes) -> bool:
    """Whether a picture file has a manifest."""
    return _STORE in picture


def described(path: Path) -> dict[str, str]:
    """A row on the manifest of a file; none where there is none, or no package that reads it."""
    if not _installed():
        return {}
    import c2pa

    try:
        with c2pa.Context.from_dict(SETTINGS) as context, c2pa.Reader(path, context=context) as reader:
            fits = reader.get_validation_state() != "Invalid"
    except (c2pa.C2paError.ManifestNotFound, c2pa.C2paError.NotSupported):
        return {}
    except c2pa.C2paError:
        return {"C2PA": "a manifest that cannot be read"}
    return {"C2PA": f"a manifest that {'fits' if fits else 'does not fit'} the file; its signer is not checked"}


def _installed() -> bool:
    return importlib.util.find_spec("c2pa") is not None
