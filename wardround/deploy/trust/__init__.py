"""Certificates, the audit log, its signed heads and countersignatures."""
