"""Prints the documents of a YAML file as one JSON array; CloudFormation tags are expanded to their functions."""

import json
import sys

import yaml


def function(loader, suffix, node):
    name = suffix if suffix in ("Ref", "Condition") else "Fn::" + suffix
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    return {name: value}


class Loader(yaml.SafeLoader):
    """Refuses duplicate keys, which YAML libraries accept silently."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key}", node.start_mark)
        return super().construct_mapping(node, deep)


Loader.add_multi_constructor("!", function)

with open(sys.argv[1], encoding="utf-8") as file:
    json.dump([d for d in yaml.load_all(file, Loader) if d is not None], sys.stdout)
