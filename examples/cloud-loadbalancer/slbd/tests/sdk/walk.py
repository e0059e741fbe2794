"""Drives slbd with both SDKs of the vendor: walk.py ENDPOINT CERTIFICATE KEY. Prints one line a step, and fails at the first surprise."""

import importlib
import json
import sys

from aliyunsdkcore.acs_exception.exceptions import ServerException
from aliyunsdkcore.client import AcsClient
from alibabacloud_slb20140515 import models
from alibabacloud_slb20140515.client import Client
from alibabacloud_tea_openapi.models import Config
from alibabacloud_tea_util.models import RuntimeOptions

REGION = "cn-loopback"


class Refused(Exception):
    """A refusal, with the code that the SDK read."""


class Older:
    """aliyun-python-sdk-slb: version 1.0 of the signature."""

    name = "aliyun-python-sdk-slb"

    def __init__(self, endpoint, secret="secret"):
        self.endpoint = endpoint
        self.client = AcsClient("id", secret, REGION, auto_retry=False)

    def call(self, action, **parameters):
        module = importlib.import_module(f"aliyunsdkslb.request.v20140515.{action}Request")
        request = getattr(module, f"{action}Request")()
        request.set_endpoint(self.endpoint)
        request.set_protocol_type("http")
        request.set_accept_format("json")
        for name, value in parameters.items():
            # A numbered parameter has a setter in the plural.
            many = isinstance(value, list)
            getattr(request, f"set_{name}s" if many else f"set_{name}")(value)
        try:
            return json.loads(self.client.do_action_with_exception(request))
        except ServerException as error:
            assert error.get_request_id(), error
            raise Refused(error.get_error_code()) from error


class Newer:
    """alibabacloud-slb20140515: ACS3-HMAC-SHA256."""

    name = "alibabacloud-slb20140515"

    def __init__(self, endpoint, secret="secret"):
        config = Config(access_key_id="id", access_key_secret=secret, endpoint=endpoint, protocol="http", region_id=REGION)
        self.client = Client(config)
        names = (name for name in dir(self.client) if name.endswith("_with_options"))
        self.methods = {name.removesuffix("_with_options").replace("_", ""): name for name in names}

    def call(self, action, **parameters):
        parameters.setdefault("RegionId", REGION)
        request = getattr(models, f"{action}Request")()
        request.from_map(parameters)
        method = getattr(self.client, self.methods[action.lower()])
        try:
            return method(request, RuntimeOptions(autoretry=False, max_attempts=1)).body.to_map()
        except Exception as error:
            code = getattr(error, "code", None)
            if code is None:
                raise
            raise Refused(code) from error


def refused(sdk, code, action, **parameters):
    try:
        answer = sdk.call(action, **parameters)
    except Refused as refusal:
        assert str(refusal) == code, f"{action}: {refusal} in place of {code}"
    else:
        raise AssertionError(f"{action} was answered: {answer}")


def walk(sdk, wrong, certificate, key):
    def done(what):
        print(f"{sdk.name}: {what}")

    refused(wrong, "SignatureDoesNotMatch", "DescribeLoadBalancers")
    done("a wrong secret is refused")

    tags = [{"Key": "cluster", "Value": "a b/c+d"}, {"Key": "service", "Value": sdk.name}]
    wanted = dict(LoadBalancerName="web", LoadBalancerSpec="slb.s1.small", AddressType="internet", ClientToken=f"t-{sdk.name}", Tag=tags)
    first = sdk.call("CreateLoadBalancer", **wanted)
    lb = first["LoadBalancerId"]
    again = sdk.call("CreateLoadBalancer", **wanted)
    assert again["LoadBalancerId"] == lb, again
    refused(sdk, "IdempotentParameterMismatch", "CreateLoadBalancer", **{**wanted, "LoadBalancerName": "other"})
    done("a creation happens once")

    found = sdk.call("DescribeLoadBalancers", Tags=json.dumps([{"TagKey": "service", "TagValue": sdk.name}]))
    assert [one["LoadBalancerId"] for one in found["LoadBalancers"]["LoadBalancer"]] == [lb], found
    shown = sdk.call("DescribeLoadBalancerAttribute", LoadBalancerId=lb)
    assert shown["LoadBalancerStatus"] == "active" and shown["Address"].startswith("127."), shown
    listed = sdk.call("ListTagResources", ResourceType="instance", ResourceId=[lb])
    pairs = {one["TagKey"]: one["TagValue"] for one in listed["TagResources"]["TagResource"]}
    assert pairs == {"cluster": "a b/c+d", "service": sdk.name}, pairs
    sdk.call("TagResources", ResourceType="instance", ResourceId=[lb], Tag=[{"Key": "more", "Value": "1"}])
    sdk.call("UntagResources", ResourceType="instance", ResourceId=[lb], TagKey=["more"])
    done("tags and searches")

    sdk.call("SetLoadBalancerName", LoadBalancerId=lb, LoadBalancerName="web-2")
    sdk.call("ModifyLoadBalancerInstanceSpec", LoadBalancerId=lb, LoadBalancerSpec="slb.s2.small")
    sdk.call("ModifyLoadBalancerInternetSpec", LoadBalancerId=lb, InternetChargeType="paybybandwidth", Bandwidth=50)
    sdk.call("SetLoadBalancerDeleteProtection", LoadBalancerId=lb, DeleteProtection="on")
    sdk.call("SetLoadBalancerModificationProtection", LoadBalancerId=lb, ModificationProtectionStatus="ConsoleProtection")
    shown = sdk.call("DescribeLoadBalancerAttribute", LoadBalancerId=lb)
    seen = [shown[name] for name in ("LoadBalancerName", "LoadBalancerSpec", "InternetChargeType", "Bandwidth", "DeleteProtection")]
    assert seen == ["web-2", "slb.s2.small", "paybybandwidth", 50, "on"], seen
    refused(sdk, "OperationDenied.DeleteProtectionIsOn", "DeleteLoadBalancer", LoadBalancerId=lb)
    done("attributes, one call each")

    group = sdk.call("CreateVServerGroup", LoadBalancerId=lb, VServerGroupName="g")["VServerGroupId"]
    servers = [{"ServerId": f"eni-{n}", "ServerIp": f"127.88.0.{n}", "Port": 80, "Weight": 100, "Type": "eni"} for n in range(1, 4)]
    sdk.call("AddVServerGroupBackendServers", VServerGroupId=group, BackendServers=json.dumps(servers))
    sdk.call("RemoveVServerGroupBackendServers", VServerGroupId=group, BackendServers=json.dumps(servers[:1]))
    sdk.call("SetVServerGroupAttribute", VServerGroupId=group, BackendServers=json.dumps([{**servers[1], "Weight": "0"}]))
    shown = sdk.call("DescribeVServerGroupAttribute", VServerGroupId=group)
    weights = {one["ServerId"]: one["Weight"] for one in shown["BackendServers"]["BackendServer"]}
    assert weights == {"eni-2": 0, "eni-3": 100}, weights
    groups = sdk.call("DescribeVServerGroups", LoadBalancerId=lb)["VServerGroups"]["VServerGroup"]
    assert [one["VServerGroupId"] for one in groups] == [group], groups
    many = [{**servers[0], "ServerId": f"eni-{n}"} for n in range(41)]
    refused(sdk, "TooManyBackendServers", "AddVServerGroupBackendServers", VServerGroupId=group, BackendServers=json.dumps(many))
    done("server groups")

    acl = sdk.call("CreateAccessControlList", AclName="office")["AclId"]
    sdk.call("AddAccessControlListEntry", AclId=acl, AclEntrys=json.dumps([{"entry": "127.0.0.0/8", "comment": "all"}]))
    shown = sdk.call("DescribeAccessControlListAttribute", AclId=acl)
    assert shown["AclEntrys"]["AclEntry"][0]["AclEntryIP"] == "127.0.0.0/8", shown
    common = dict(LoadBalancerId=lb, VServerGroupId=group, Bandwidth=-1)
    sdk.call("CreateLoadBalancerTCPListener", ListenerPort=80, AclStatus="on", AclType="white", AclId=acl, **common)
    sdk.call("CreateLoadBalancerHTTPListener", ListenerPort=8080, StickySession="off", HealthCheck="on", HealthCheckURI="/live", **common)
    sdk.call("CreateLoadBalancerUDPListener", ListenerPort=53, **common)
    refused(sdk, "ListenerAlreadyExists", "CreateLoadBalancerTCPListener", ListenerPort=8080, **common)
    sdk.call("SetLoadBalancerTCPListenerAttribute", LoadBalancerId=lb, ListenerPort=80, Scheduler="rr")
    sdk.call("StartLoadBalancerListener", LoadBalancerId=lb, ListenerPort=80)
    shown = sdk.call("DescribeLoadBalancerTCPListenerAttribute", LoadBalancerId=lb, ListenerPort=80)
    assert (shown["Status"], shown["Scheduler"], shown["AclId"]) == ("running", "rr", acl), shown
    listed = sdk.call("DescribeLoadBalancerListeners", LoadBalancerId=[lb], MaxResults=50)["Listeners"]
    ports = [(one["ListenerPort"], one["ListenerProtocol"], one["Status"]) for one in listed]
    assert ports == [(53, "udp", "stopped"), (80, "tcp", "running"), (8080, "http", "stopped")], ports
    assert listed[2]["HTTPListenerConfig"]["HealthCheckURI"] == "/live", listed[2]
    done("listeners")

    uploaded = dict(ServerCertificate=certificate, PrivateKey=key, ServerCertificateName="web")
    one = sdk.call("UploadServerCertificate", **uploaded)["ServerCertificateId"]
    other = sdk.call("UploadServerCertificate", **uploaded)["ServerCertificateId"]
    listed = sdk.call("DescribeServerCertificates", ServerCertificateId=one)["ServerCertificates"]["ServerCertificate"]
    assert [(one["ServerCertificateName"], len(one["Fingerprint"])) for one in listed] == [("web", 59)], listed
    refused(sdk, "PrivateKeyEncryption", "UploadServerCertificate", **{**uploaded, "PrivateKey": "ENCRYPTED"})
    https = dict(ListenerPort=443, StickySession="off", HealthCheck="off", ServerCertificateId=one)
    sdk.call("CreateLoadBalancerHTTPSListener", **https, **common)
    sdk.call("SetLoadBalancerHTTPSListenerAttribute", LoadBalancerId=lb, ListenerPort=443, TLSCipherPolicy="tls_cipher_policy_1_2")
    shown = sdk.call("DescribeLoadBalancerHTTPSListenerAttribute", LoadBalancerId=lb, ListenerPort=443)
    assert (shown["ServerCertificateId"], shown["TLSCipherPolicy"]) == (one, "tls_cipher_policy_1_2"), shown
    domain = dict(LoadBalancerId=lb, ListenerPort=443, Domain="shop.example.com", ServerCertificateId=one)
    extension = sdk.call("CreateDomainExtension", **domain)["DomainExtensionId"]
    sdk.call("SetDomainExtensionAttribute", DomainExtensionId=extension, ServerCertificateId=other)
    listed = sdk.call("DescribeDomainExtensions", LoadBalancerId=lb, ListenerPort=443)["DomainExtensions"]["DomainExtension"]
    assert [(one["Domain"], one["ServerCertificateId"]) for one in listed] == [("shop.example.com", other)], listed
    refused(sdk, "CertificateAndPrivateKeyIsRefered", "DeleteServerCertificate", ServerCertificateId=other)
    sdk.call("DeleteDomainExtension", DomainExtensionId=extension)
    sdk.call("DeleteLoadBalancerListener", LoadBalancerId=lb, ListenerPort=443, ListenerProtocol="https")
    for certificate in (one, other):
        sdk.call("DeleteServerCertificate", ServerCertificateId=certificate)
    done("certificates and HTTPS")

    refused(sdk, "RspoolVipExist", "DeleteVServerGroup", VServerGroupId=group)
    refused(sdk, "AclInUsed", "DeleteAccessControlList", AclId=acl)
    for port, protocol in [(53, "udp"), (80, "tcp"), (8080, "http")]:
        sdk.call("DeleteLoadBalancerListener", LoadBalancerId=lb, ListenerPort=port, ListenerProtocol=protocol)
    sdk.call("DeleteVServerGroup", VServerGroupId=group)
    sdk.call("DeleteAccessControlList", AclId=acl)
    sdk.call("SetLoadBalancerDeleteProtection", LoadBalancerId=lb, DeleteProtection="off")
    sdk.call("DeleteLoadBalancer", LoadBalancerId=lb)
    refused(sdk, "InvalidLoadBalancerId.NotFound", "DescribeLoadBalancerAttribute", LoadBalancerId=lb)
    done("everything is deleted")


if __name__ == "__main__":
    endpoint, *files = sys.argv[1:]
    pair = [open(file, encoding="ascii").read() for file in files]
    for kind in (Older, Newer):
        walk(kind(endpoint), kind(endpoint, secret="wrong"), *pair)
