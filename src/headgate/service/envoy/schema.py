"""The schema: the messages and services of the wire as descriptors, for whoever asks for them.

Fields that we neither read nor write are left out. A line is a field: its type, name and number,
and the `oneof` that it belongs to; `map` marks the entries of a map.
"""

from __future__ import annotations

from .wire import flag, message, number, text

__all__ = ["FILES", "SERVICES", "TEXT"]

TEXT = """
file google/protobuf/duration.proto google.protobuf
message Duration
  int64 seconds 1
  int32 nanos 2
file google/protobuf/wrappers.proto google.protobuf
message UInt64Value
  uint64 value 1
message UInt32Value
  uint32 value 1
file google/protobuf/struct.proto google.protobuf
message Struct
  repeated .google.protobuf.Struct.FieldsEntry fields 1
message Struct.FieldsEntry map
  string key 1
  .google.protobuf.Value value 2
message Value
  .google.protobuf.NullValue null_value 1 kind
  double number_value 2 kind
  string string_value 3 kind
  bool bool_value 4 kind
  .google.protobuf.Struct struct_value 5 kind
  .google.protobuf.ListValue list_value 6 kind
enum NullValue NULL_VALUE
message ListValue
  repeated .google.protobuf.Value values 1
file envoy/type/v3/ratelimit_unit.proto envoy.type.v3
enum RateLimitUnit UNKNOWN SECOND MINUTE HOUR DAY MONTH YEAR WEEK
file envoy/type/v3/token_bucket.proto envoy.type.v3
import google/protobuf/duration.proto google/protobuf/wrappers.proto
message TokenBucket
  uint32 max_tokens 1
  .google.protobuf.UInt32Value tokens_per_fill 2
  .google.protobuf.Duration fill_interval 3
file envoy/type/v3/ratelimit_strategy.proto envoy.type.v3
import envoy/type/v3/ratelimit_unit.proto envoy/type/v3/token_bucket.proto
message RateLimitStrategy
  .envoy.type.v3.RateLimitStrategy.BlanketRule blanket_rule 1 strategy
  .envoy.type.v3.RateLimitStrategy.RequestsPerTimeUnit requests_per_time_unit 2 strategy
  .envoy.type.v3.TokenBucket token_bucket 3 strategy
enum RateLimitStrategy.BlanketRule ALLOW_ALL DENY_ALL
message RateLimitStrategy.RequestsPerTimeUnit
  uint64 requests_per_time_unit 1
  .envoy.type.v3.RateLimitUnit time_unit 2
file envoy/config/core/v3/base.proto envoy.config.core.v3
message HeaderValue
  string key 1
  string value 2
  bytes raw_value 3
file envoy/extensions/common/ratelimit/v3/ratelimit.proto envoy.extensions.common.ratelimit.v3
import envoy/type/v3/ratelimit_unit.proto google/protobuf/wrappers.proto
message RateLimitDescriptor
  repeated .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry entries 1
  .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride limit 2
  .google.protobuf.UInt64Value hits_addend 3
  bool is_negative_hits 4
message RateLimitDescriptor.Entry
  string key 1
  string value 2
message RateLimitDescriptor.RateLimitOverride
  uint32 requests_per_unit 1
  .envoy.type.v3.RateLimitUnit unit 2
file envoy/service/ratelimit/v3/rls.proto envoy.service.ratelimit.v3
import envoy/config/core/v3/base.proto envoy/extensions/common/ratelimit/v3/ratelimit.proto
import google/protobuf/duration.proto google/protobuf/struct.proto
message RateLimitRequest
  string domain 1
  repeated .envoy.extensions.common.ratelimit.v3.RateLimitDescriptor descriptors 2
  uint32 hits_addend 3
message RateLimitResponse
  .envoy.service.ratelimit.v3.RateLimitResponse.Code overall_code 1
  repeated .envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus statuses 2
  repeated .envoy.config.core.v3.HeaderValue response_headers_to_add 3
  repeated .envoy.config.core.v3.HeaderValue request_headers_to_add 4
  bytes raw_body 5
  .google.protobuf.Struct dynamic_metadata 6
enum RateLimitResponse.Code UNKNOWN OK OVER_LIMIT
message RateLimitResponse.RateLimit
  uint32 requests_per_unit 1
  .envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit unit 2
  string name 3
enum RateLimitResponse.RateLimit.Unit UNKNOWN SECOND MINUTE HOUR DAY MONTH YEAR WEEK
message RateLimitResponse.DescriptorStatus
  .envoy.service.ratelimit.v3.RateLimitResponse.Code code 1
  .envoy.service.ratelimit.v3.RateLimitResponse.RateLimit current_limit 2
  uint32 limit_remaining 3
  .google.protobuf.Duration duration_until_reset 4
service RateLimitService
  ShouldRateLimit RateLimitRequest RateLimitResponse
file envoy/service/rate_limit_quota/v3/rlqs.proto envoy.service.rate_limit_quota.v3
import envoy/type/v3/ratelimit_strategy.proto google/protobuf/duration.proto
message RateLimitQuotaUsageReports
  string domain 1
  repeated .{quota}.RateLimitQuotaUsageReports.BucketQuotaUsage bucket_quota_usages 2
message RateLimitQuotaUsageReports.BucketQuotaUsage
  .{quota}.BucketId bucket_id 1
  .google.protobuf.Duration time_elapsed 2
  uint64 num_requests_allowed 3
  uint64 num_requests_denied 4
message RateLimitQuotaResponse
  repeated .{quota}.RateLimitQuotaResponse.BucketAction bucket_action 1
message RateLimitQuotaResponse.BucketAction
  .{quota}.BucketId bucket_id 1
  .{quota}.RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction \
quota_assignment_action 2 bucket_action
  .{quota}.RateLimitQuotaResponse.BucketAction.AbandonAction abandon_action 3 bucket_action
message RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction
  .google.protobuf.Duration assignment_time_to_live 2
  .envoy.type.v3.RateLimitStrategy rate_limit_strategy 3
message RateLimitQuotaResponse.BucketAction.AbandonAction
message BucketId
  repeated .{quota}.BucketId.BucketEntry bucket 1
message BucketId.BucketEntry map
  string key 1
  string value 2
service RateLimitQuotaService
  StreamRateLimitQuotas RateLimitQuotaUsageReports RateLimitQuotaResponse both
file grpc/health/v1/health.proto grpc.health.v1
message HealthCheckRequest
  string service 1
message HealthCheckResponse
  .grpc.health.v1.HealthCheckResponse.ServingStatus status 1
enum HealthCheckResponse.ServingStatus UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN
service Health
  Check HealthCheckRequest HealthCheckResponse
  Watch HealthCheckRequest HealthCheckResponse out
""".replace("{quota}", "envoy.service.rate_limit_quota.v3")

TYPES = {
    "double": 1, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12,
    "uint32": 13,
}  # fmt: skip
MESSAGE, ENUM = 11, 14


class Kind:
    """A message or an enum."""

    def __init__(self, words: list[str]) -> None:
        self.enum = words[0] == "enum"
        self.path = words[1].split(".")
        self.more = words[2:]
        self.lines: list[list[str]] = []
        self.inner: list[Kind] = []

    def written(self, enums: set[str]) -> bytes:
        """As a DescriptorProto or an EnumDescriptorProto."""
        out = [text(1, self.path[-1])]
        if self.enum:
            pairs = enumerate(self.more)
            out += [message(2, text(1, name) + number(2, value)) for value, name in pairs]
            return b"".join(out)
        choices: list[str] = []
        for line in self.lines:
            out.append(message(2, _field(line, enums, choices)))
        for kind in self.inner:
            out.append(message(4 if kind.enum else 3, kind.written(enums)))
        if self.more == ["map"]:
            out.append(message(7, flag(7, value=True)))
        out += [message(8, text(1, choice)) for choice in choices]
        return b"".join(out)


def _field(line: list[str], enums: set[str], choices: list[str]) -> bytes:
    label = 1
    if line[0] == "repeated":
        label, line = 3, line[1:]
    kind, name, place, *choice = line
    out = text(1, name) + number(3, int(place)) + number(4, label)
    if kind.startswith("."):
        out += number(5, ENUM if kind in enums else MESSAGE) + text(6, kind)
    else:
        out += number(5, TYPES[kind])
    if choice:
        if choice[0] not in choices:
            choices += choice
        place_of = choices.index(choice[0])
        out += b"\x48" + bytes((place_of,))  # oneof_index, there even if it is 0
    return out


class File:
    """One file of the schema."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        self.imports: list[str] = []
        self.kinds: dict[str, Kind] = {}
        self.services: dict[str, list[list[str]]] = {}

    def symbols(self) -> list[str]:
        """All names that are defined here."""
        methods = [f"{name}.{line[0]}" for name, lines in self.services.items() for line in lines]
        return [f"{self.package}.{name}" for name in (*self.kinds, *self.services, *methods)]

    def written(self, enums: set[str]) -> bytes:
        """As a FileDescriptorProto."""
        for name, kind in self.kinds.items():
            outer = self.kinds.get(name.rpartition(".")[0])
            if outer is not None:
                outer.inner.append(kind)
        out = [text(1, self.name), text(2, self.package)]
        out += [text(3, name) for name in self.imports]
        for kind in self.kinds.values():
            if len(kind.path) == 1:
                out.append(message(5 if kind.enum else 4, kind.written(enums)))
        for name, lines in self.services.items():
            methods = [message(2, self._method(line)) for line in lines]
            out.append(message(6, text(1, name) + b"".join(methods)))
        return b"".join([*out, text(12, "proto3")])

    def _method(self, line: list[str]) -> bytes:
        name, given, answered, *ways = line
        out = text(1, name) + text(2, f".{self.package}.{given}")
        out += text(3, f".{self.package}.{answered}")
        return out + flag(5, ways == ["both"]) + flag(6, bool(ways))


def _read() -> list[File]:
    files: list[File] = []
    lines: list[list[str]] = []
    for line in TEXT.strip().splitlines():
        words = line.split()
        if line.startswith(" "):
            lines.append(words)
        elif words[0] == "file":
            files.append(File(*words[1:]))
        elif words[0] == "import":
            files[-1].imports += words[1:]
        elif words[0] == "service":
            lines = files[-1].services[words[1]] = []
        else:
            kind = files[-1].kinds[words[1]] = Kind(words)
            lines = kind.lines
    return files


_files = _read()
_enums = {f".{f.package}.{name}" for f in _files for name, kind in f.kinds.items() if kind.enum}
FILES = {file.name: (file.written(_enums), tuple(file.imports)) for file in _files}
"""By name: a FileDescriptorProto, and the names of those that it needs."""
SYMBOLS = {symbol: file.name for file in _files for symbol in file.symbols()}
"""Where each name is defined."""
SERVICES = tuple(f"{file.package}.{name}" for file in _files for name in file.services)
