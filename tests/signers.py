"""Certificates and keys for C2PA, made on the spot, and what a file's manifest says."""

import importlib.util
import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from faceanon.photo.mark import SOURCE_TYPE

needs_c2pa = pytest.mark.skipif(
    importlib.util.find_spec("c2pa") is None, reason="c2pa-python is not installed (extra c2pa)"
)


def named(text):
    return x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, text), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Studio")]
    )


def certificate(name, key, above, above_key, authority=False, purpose=ExtendedKeyUsageOID.EMAIL_PROTECTION, age=1):
    """A certificate in PEM, `age` days old and good for 30."""
    begin = datetime.now(UTC) - timedelta(days=age)
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    usage |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    builder = (
        x509.CertificateBuilder(named(above), named(name), key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=30))
        .add_extension(x509.BasicConstraints(authority, None), True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above_key.public_key()), False)
        .add_extension(x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, **usage), True)
    )
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
    return builder.sign(above_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def write_signer(folder, **options):
    """Files of a chain and of the key of its first certificate."""
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    own = certificate("Signer", key, "Authority", authority, **options)
    (folder / "chain.pem").write_bytes(own + certificate("Authority", authority, "Authority", authority, True))
    write_key(folder / "key.pem", key)
    return folder / "chain.pem", folder / "key.pem"


def write_key(path, key=None, passphrase=None):
    key = key or ec.generate_private_key(ec.SECP256R1())
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    # The older form of a key, which openssl writes too.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))


def check_manifest(path):
    """One manifest, which fits the file and says nothing but how it was made."""
    import c2pa

    with c2pa.Reader(path) as reader:
        said = json.loads(reader.json())
    (manifest,) = said["manifests"].values()
    assert said["validation_state"] == "Valid"
    # Nobody has the authority of a test in his list.
    assert [status["code"] for status in said["validation_status"]] == ["signingCredential.untrusted"]
    action = {"action": "c2pa.created", "digitalSourceType": SOURCE_TYPE}
    # Of a film the hash of the file is listed too.
    said_of = [part for part in manifest["assertions"] if not part["label"].startswith("c2pa.hash.")]
    assert said_of == [{"label": "c2pa.actions.v2", "data": {"actions": [action]}}]
    assert manifest["claim_generator_info"][0]["name"] == "faceanon"
    assert set(manifest["signature_info"]) == {"alg", "issuer", "common_name", "cert_serial_number"}
    about = {"claim_generator_info", "instance_id", "assertions", "signature_info", "label", "claim_version"}
    assert set(manifest) == about
