"""Translate users' storage options to the settings of the object store client.

Accepted are obstore's and deltalake's keys (`aws_access_key_id`, `AWS_ENDPOINT`) and Hadoop's
(`fs.s3a.access.key`), also with Spark's `spark.hadoop.` before them.  Only the given options are
used, and no value ever goes into a message.

>>> client_settings("s3", "bucket", {"fs.s3a.access.key": "AK", "AWS_REGION": "eu-west-1"}).config
{'aws_region': 'eu-west-1', 'access_key_id': 'AK'}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Key after `fs.s3a.` or `fs.s3a.bucket.<name>.` -> our name for it.
_HADOOP_S3 = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
    "path.style.access": "path_style",
    "connection.ssl.enabled": "ssl",
    "aws.credentials.provider": "provider",
}
# Key after `fs.azure.`, with or without `.<account>...` -> our name for it.
_HADOOP_AZURE = {
    "account.key": "account_key",
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
    "account.oauth2.client.endpoint": "oauth_endpoint",
    "account.oauth2.msi.tenant": "tenant_id",
    "sas.fixed.token": "sas_key",
}
CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
"""Options of the HTTP client, which deltalake mixes with those of the store."""

# deltalake's alternatives to put-if-absent, which is always used here.
_IGNORED_KEYS = frozenset(
    {
        "allow_unsafe_rename",
        "aws_s3_allow_unsafe_rename",
        "aws_s3_locking_provider",
        "delta_dynamo_table_name",
        "dynamo_table_name",
        "mount_allow_unsafe_rename",
    }
)
_TRUE = ("true", "1", "yes", "on")
_VENDOR_PREFIXES = ("aws_", "azure_", "storage_", "google_")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The settings of an obstore client.  Its `repr` has no values: most are secrets."""

    config: dict[str, str] = field(default_factory=dict, repr=False)
    client: dict[str, object] = field(default_factory=dict, repr=False)


def client_settings(provider: str, bucket: str, options: Mapping[str, str]) -> ClientSettings:
    """The settings for `provider` ("s3", "gs" or "azure"); keys of other providers are dropped.

    An unknown key is passed on, so that the client rejects it by name.
    """
    settings = ClientSettings()
    hadoop: dict[str, str] = {}
    for key, value in options.items():
        short = key.removeprefix("spark.hadoop.")
        if short.startswith(("fs.", "dfs.")):
            hadoop[short] = str(value)
            continue
        lower = short.lower()
        bare = _without_vendor(lower)
        if lower in _IGNORED_KEYS or bare in _IGNORED_KEYS:
            continue
        if bare in CLIENT_KEYS:
            settings.client[bare] = _is_true(value) if bare.startswith("allow_") else str(value)
        else:
            settings.config[lower] = str(value)
    _TRANSLATORS[provider](bucket, hadoop, settings)
    return settings


def _from_hadoop_s3(bucket: str, hadoop: Mapping[str, str], settings: ClientSettings) -> None:
    # Later prefixes win: options of one bucket take precedence over those of all.
    config = {
        name: hadoop[prefix + suffix]
        for prefix in ("fs.s3n.", "fs.s3.", "fs.s3a.", f"fs.s3a.bucket.{bucket}.")
        for suffix, name in _HADOOP_S3.items()
        if prefix + suffix in hadoop
    }
    uses_ssl = _is_true(config.pop("ssl", "true"))
    if "path_style" in config:
        host_style = not _is_true(config.pop("path_style"))
        config["virtual_hosted_style_request"] = str(host_style).lower()
    if "Anonymous" in config.pop("provider", ""):
        config["skip_signature"] = "true"
    if endpoint := config.get("endpoint"):
        if "://" not in endpoint:
            endpoint = f"http{'s' if uses_ssl else ''}://{endpoint}"
        config["endpoint"] = endpoint
        if endpoint.startswith("http://"):
            settings.client.setdefault("allow_http", True)
    _add_defaults(settings, config)


def _from_hadoop_gcs(bucket: str, hadoop: Mapping[str, str], settings: ClientSettings) -> None:
    if key_file := hadoop.get("fs.gs.auth.service.account.json.keyfile"):
        _add_defaults(settings, {"service_account": key_file})


def _from_hadoop_azure(bucket: str, hadoop: Mapping[str, str], settings: ClientSettings) -> None:
    container, _, host = bucket.rpartition("@")
    account, _, domain = host.partition(".")
    if container:
        _add_defaults(settings, {"account_name": account})
        _set_azure_endpoint(account, domain, settings)
    else:
        given = {_without_vendor(key): value for key, value in settings.config.items()}
        account = given.get("account_name", "")
    config = {
        name: value
        for suffix, name in _HADOOP_AZURE.items()
        for ending in ("", f".{account}", f".{host}")
        if (value := hadoop.get(f"fs.azure.{suffix}{ending}"))
    }
    if sas := hadoop.get(f"fs.azure.sas.{container}.{host}"):
        config["sas_key"] = sas
    if endpoint := config.pop("oauth_endpoint", ""):
        # https://login.microsoftonline.com/<tenant>/oauth2/token
        config.setdefault("tenant_id", endpoint.partition("://")[2].split("/")[1:2][0])
    _add_defaults(settings, config)


def _set_azure_endpoint(account: str, domain: str, settings: ClientSettings) -> None:
    if domain.endswith("fabric.microsoft.com"):
        _add_defaults(settings, {"use_fabric_endpoint": "true"})
    elif domain and not domain.endswith("core.windows.net"):
        # A national cloud: the client uses the blob service that belongs to the given dfs one.
        service = domain.removeprefix("dfs.").removeprefix("blob.")
        _add_defaults(settings, {"endpoint": f"https://{account}.blob.{service}"})


_TRANSLATORS = {"s3": _from_hadoop_s3, "gs": _from_hadoop_gcs, "azure": _from_hadoop_azure}


def _add_defaults(settings: ClientSettings, config: Mapping[str, str]) -> None:
    given = {_without_vendor(key) for key in settings.config}
    settings.config.update({name: value for name, value in config.items() if name not in given})


def _without_vendor(key: str) -> str:
    for prefix in _VENDOR_PREFIXES:
        key = key.removeprefix(prefix)
    return key


def _is_true(value: object) -> bool:
    return str(value).strip().lower() in _TRUE
