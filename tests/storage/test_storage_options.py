from __future__ import annotations

import pytest

from pyspark_delta.kernel.storage.storage_options import client_settings


def test_hadoop_keys_become_the_clients() -> None:
    settings = client_settings(
        "s3",
        "bucket",
        {
            "fs.s3a.access.key": "key",
            "spark.hadoop.fs.s3a.secret.key": "secret",
            "fs.s3a.session.token": "token",
            "fs.s3a.endpoint": "http://localhost:9000",
            "fs.s3a.endpoint.region": "eu-central-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.maximum": "100",
            "fs.defaultFS": "hdfs://x",
        },
    )
    assert settings.config == {
        "access_key_id": "key",
        "secret_access_key": "secret",
        "session_token": "token",
        "endpoint": "http://localhost:9000",
        "region": "eu-central-1",
        "virtual_hosted_style_request": "false",
    }
    assert settings.client == {"allow_http": True}


def test_what_is_said_of_one_bucket_outweighs_what_is_said_of_all() -> None:
    options = {
        "fs.s3a.bucket.mine.access.key": "mine",
        "fs.s3a.access.key": "any",
        "fs.s3a.bucket.yours.access.key": "yours",
    }
    assert client_settings("s3", "mine", options).config == {"access_key_id": "mine"}
    assert client_settings("s3", "other", options).config == {"access_key_id": "any"}


def test_the_clients_own_keys_outweigh_hadoops() -> None:
    options = {"AWS_ACCESS_KEY_ID": "ours", "fs.s3a.access.key": "hadoop"}
    assert client_settings("s3", "b", options).config == {"aws_access_key_id": "ours"}


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({"fs.s3a.endpoint": "host:9000"}, "https://host:9000"),
        (
            {"fs.s3a.endpoint": "host:9000", "fs.s3a.connection.ssl.enabled": "false"},
            "http://host:9000",
        ),
    ],
)
def test_an_endpoint_gets_a_scheme(options: dict[str, str], endpoint: str) -> None:
    assert client_settings("s3", "b", options).config["endpoint"] == endpoint


def test_public_buckets_need_no_signature() -> None:
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    settings = client_settings("s3", "b", {"fs.s3a.aws.credentials.provider": provider})
    assert settings.config == {"skip_signature": "true"}


def test_options_of_the_http_client_are_told_apart() -> None:
    options = {"AWS_ALLOW_HTTP": "true", "timeout": "30s", "allow_invalid_certificates": "false"}
    settings = client_settings("s3", "b", options)
    assert settings.config == {}
    assert settings.client == {
        "allow_http": True,
        "timeout": "30s",
        "allow_invalid_certificates": False,
    }


def test_ways_around_safe_commits_are_ignored() -> None:
    options = {"AWS_S3_ALLOW_UNSAFE_RENAME": "true", "aws_s3_locking_provider": "dynamodb"}
    assert client_settings("s3", "b", options).config == {}


@pytest.mark.parametrize("ending", ["", ".account", ".account.dfs.core.windows.net"])
def test_azure_keys_may_name_the_account(ending: str) -> None:
    settings = client_settings(
        "azure",
        "container@account.dfs.core.windows.net",
        {
            f"fs.azure.account.key{ending}": "key",
            "fs.azure.account.key.other.dfs.core.windows.net": "other",
        },
    )
    assert settings.config == {"account_name": "account", "account_key": "key"}


def test_azure_takes_a_service_principal() -> None:
    account = "account.dfs.core.windows.net"
    settings = client_settings(
        "azure",
        f"container@{account}",
        {
            f"fs.azure.account.oauth2.client.id.{account}": "id",
            f"fs.azure.account.oauth2.client.secret.{account}": "secret",
            f"fs.azure.account.oauth2.client.endpoint.{account}": (
                "https://login.microsoftonline.com/tenant/oauth2/token"
            ),
            f"fs.azure.sas.container.{account}": "sas",
        },
    )
    assert settings.config == {
        "account_name": "account",
        "client_id": "id",
        "client_secret": "secret",
        "tenant_id": "tenant",
        "sas_key": "sas",
    }


def test_a_national_cloud_has_its_own_endpoint() -> None:
    settings = client_settings("azure", "c@account.dfs.core.chinacloudapi.cn", {})
    assert settings.config["endpoint"] == "https://account.blob.core.chinacloudapi.cn"


def test_google_takes_a_key_file() -> None:
    options = {"fs.gs.auth.service.account.json.keyfile": "/key.json"}
    assert client_settings("gs", "b", options).config == {"service_account": "/key.json"}


def test_settings_show_no_value() -> None:
    settings = client_settings("s3", "b", {"fs.s3a.secret.key": "planted", "proxy_url": "planted"})
    assert "planted" not in repr(settings)
