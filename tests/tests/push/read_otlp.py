"""Reads requests of OTLP by the classes that protoc made of the published schema: read_otlp.py FILE...

Each field must be one of the schema, each index lead to an entry, and each rule hold that profiles.proto states. Prints
as JSON what the requests have: their resources, and for each sample its process, thread, stack (leaf first), time and
value. Of memory, samples have no time: the name of the value stands there.

With "answers" in place of files, prints answers of receivers, in hexadecimal, and the method that takes requests.
"""

import json
import sys

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import (
    ExportProfilesPartialSuccess,
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
    DESCRIPTOR,
)

if sys.argv[1] == "answers":
    all_of_it = ExportProfilesServiceResponse()
    warning, rejected = (
        ExportProfilesServiceResponse(partial_success=ExportProfilesPartialSuccess(**fields))
        for fields in ({"error_message": "soon full"}, {"rejected_profiles": 1, "error_message": "too old"})
    )
    answers = {"all": all_of_it, "warning": warning, "rejected": rejected}
    answers = {name: answer.SerializeToString().hex() for name, answer in answers.items()}
    (service,) = DESCRIPTOR.services_by_name.values()
    (method,) = service.methods
    print(json.dumps({**answers, "method": "/%s/%s" % (service.full_name, method.name)}))
    sys.exit()


MEMORY = {
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
}


def check_fields(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for _, value in message.ListFields():
        for part in [value] if isinstance(value, Message) else value if hasattr(value, "__iter__") else []:
            if isinstance(part, Message):
                check_fields(part)


def value_of(value):
    assert value.WhichOneof("value") in ("string_value", "int_value"), value
    return getattr(value, value.WhichOneof("value"))


class Table:
    """A table of the dictionary, of which each entry must be used, and none be there twice."""

    def __init__(self, entries):
        zero = type(entries[0])()
        assert entries[0] == zero, entries[0]
        keys = [entry if isinstance(entry, str) else entry.SerializeToString(deterministic=True) for entry in entries]
        assert len(set(keys)) == len(keys), "an entry is there twice"
        self.entries, self.used = entries, {0}

    def __getitem__(self, index):
        assert 0 <= index < len(self.entries), index
        self.used.add(index)
        return self.entries[index]


def read(path):
    with open(path, "rb") as file:
        request = ExportProfilesServiceRequest.FromString(file.read())
    check_fields(request)
    d = request.dictionary
    text, attributes, stacks = Table(d.string_table), Table(d.attribute_table), Table(d.stack_table)
    locations, functions, mappings = Table(d.location_table), Table(d.function_table), Table(d.mapping_table)
    links = Table(d.link_table)

    def attributes_of(indices):
        assert 0 not in indices
        pairs = [(text[attributes[i].key_strindex], value_of(attributes[i].value)) for i in indices]
        assert len(dict(pairs)) == len(pairs) and all(key for key, _ in pairs), pairs
        return dict(pairs)

    def names_of(stack):
        names = []
        for index in stacks[stack].location_indices:
            assert index != 0
            location = locations[index]
            mapping = mappings[location.mapping_index]
            if location.mapping_index != 0:
                assert mapping.memory_start <= location.address <= mapping.memory_limit, location
                assert text[mapping.filename_strindex]
                attributes_of(mapping.attribute_indices)
            attributes_of(location.attribute_indices)
            for line in location.lines:
                assert line.function_index != 0 and line.line >= 0 and line.column >= 0
                function = functions[line.function_index]
                text[function.filename_strindex]
                names.append(text[function.name_strindex])
        return ";".join(names)

    resources, samples = [], []
    for of_process in request.resource_profiles:
        known = {pair.key: value_of(pair.value) for pair in of_process.resource.attributes}
        assert len(known) == len(of_process.resource.attributes), "a key is there twice"
        resources.append(known)
        assert len(of_process.scope_profiles) == 1
        scope = of_process.scope_profiles[0]
        assert scope.scope.name == "uu" and scope.scope.version
        for profile in scope.profiles:
            kind = profile.sample_type
            kind = (text[kind.type_strindex], text[kind.unit_strindex])
            period = (text[profile.period_type.type_strindex], text[profile.period_type.unit_strindex])
            assert profile.period > 0
            assert (kind, period) == (("cpu", "nanoseconds"),) * 2 or (kind in MEMORY and period == ("space", "bytes"))
            end = profile.time_unix_nano + profile.duration_nano
            identities = set()
            for sample in profile.samples:
                is_timed = kind not in MEMORY
                assert len(sample.values) > 0 and min(sample.values) > 0
                assert len(sample.timestamps_unix_nano) == (len(sample.values) if is_timed else 0)
                assert links[sample.link_index] == links[0]
                identity = (sample.stack_index, frozenset(sample.attribute_indices))
                assert identity not in identities, "a sample that should be one with another"
                identities.add(identity)
                thread = attributes_of(sample.attribute_indices)["thread.id"]
                names = names_of(sample.stack_index)
                if not is_timed:
                    assert len(sample.values) == 1
                    samples.append([known["process.pid"], thread, names, kind[0], sample.values[0]])
                for time, value in zip(sample.timestamps_unix_nano, sample.values):
                    assert profile.time_unix_nano <= time <= end, (profile.time_unix_nano, time, end)
                    samples.append([known["process.pid"], thread, names, time, value])
    for table in (text, attributes, stacks, locations, functions, mappings, links):
        assert len(table.used) == len(table.entries), "an entry is not used"
    return {"resources": resources, "samples": samples}


print(json.dumps([read(path) for path in sys.argv[1:]]))
