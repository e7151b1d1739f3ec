"""Public keys as cosign and openssl write them. Nobody has the private halves."""

from __future__ import annotations

import base64

ELLIPTIC = """\
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAETRja95Y3worwViwlKf4vq78/jMJ4
FL0zO5HI8ouCoyWFdhCamIJwUPb7nsk5FxCUyM8jxGx1klv3eZtl1TfkGQ=="""
OTHER = """\
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE1Aqw4vhTpaSbJ+yLpm40B94EFoep/FUk
nVXDjO7NlbMLLbzAzkvKrESjqkiW2eH6nBJY+r81E/LF2cVUPf2z0b+QgK/HSQQ7
m61qFEFxvTBkOIwQDrdKwXNz2ir+/FNG"""
LONG = """\
MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQAB5lI9bHE459sueVacr1S1u4HwkHJ
ppaBESn+KCscKnAFJSjpzOWyU1e+zTSwvOCzowKFt0DTEe92jdcT9rLfdcIBk/6r
yoDjASFYsTUxBq75CVup5Joz71In4TyECVFr17kZOjmt3wY0ubrlXOVdFAm89Jyy
jINJMeGbnNRewx2EWoE="""
ED25519 = "MCowBQYDK2VwAyEAZcIndkCKcTX3j2Qk8J/Vc3ln7rdn+bWQkSFGwtN905U="
RSA = """\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA5unLEPrGEPlLe/+v0d21
+ZTcJdY2D/qiXyxfc6ntTntzqZIn8/A7FUwWW8kE96En+WohbCfYqo7sSrc2Spgz
R+RAWgkvy603Lq+RxCfWMZXOpiZmMyxwuIbp8IVd08KgFipGl85sKAlyZ6MB66TP
OEvOAXTaUiG1ajLQ2SOMED0OZg2CRbrbbsXmPVXsLNcjvX9/zXg/R0i/WBkVRgyD
5H7Me5xLSZrwX/ockGzm66J4rIaVRJVee7ZFrxnbDV4oFZpZtX9WPx9wqf76SqKa
oj1tjQPUmR9MRLO4O13kQm/mzOzeqlJIdEWiqcjjzTlVPFpf1hAvKc+1TrXm5Vt6
awIDAQAB"""


def der(key: str) -> bytes:
    return base64.b64decode(key)


def pem(key: str) -> str:
    return f"-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n"
