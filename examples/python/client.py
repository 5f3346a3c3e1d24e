#!/usr/bin/env python3
"""A client of Keelson that needs nothing but Python.

    keelson &                            # makes ./keelson-data
    python3 client.py keelson-data https://127.0.0.1:6443

It creates a ConfigMap, watches it, changes it by server-side apply, and deletes it. It is the administrator, by the
certificate that the server keeps in its data directory.
"""

import json
import ssl
import sys
import urllib.error
import urllib.request


class Client:
    def __init__(self, data_dir, server):
        self.server = server
        self.tls = ssl.create_default_context(cafile=f"{data_dir}/pki/ca.crt")
        self.tls.load_cert_chain(f"{data_dir}/pki/admin.crt", f"{data_dir}/pki/admin.key")

    def open(self, method, path, body=None, content_type="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": content_type}, method=method)
        return urllib.request.urlopen(request, context=self.tls, timeout=30)

    def send(self, method, path, body=None, content_type="application/json"):
        with self.open(method, path, body, content_type) as response:
            return json.load(response)


def main(data_dir, server):
    client = Client(data_dir, server)
    maps = "/api/v1/namespaces/default/configmaps"
    created = client.send("POST", maps, {"metadata": {"name": "from-python"}, "data": {"colour": "blue"}})
    version = created["metadata"]["resourceVersion"]

    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from-python"}, "data": {"size": "large"}}
    client.send("PATCH", f"{maps}/from-python?fieldManager=example", applied, "application/apply-patch+yaml")
    client.send("DELETE", f"{maps}/from-python")

    # The watch begins after the creation, so it sees what has happened since.
    query = f"?watch=true&fieldSelector=metadata.name=from-python&resourceVersion={version}"
    with client.open("GET", maps + query) as events:
        for line in events:
            event = json.loads(line)
            print(event["type"], event["object"]["data"])
            if event["type"] == "DELETED":
                break

    try:
        client.send("GET", f"{maps}/from-python")
    except urllib.error.HTTPError as error:
        print(error.code, json.load(error)["message"])


if __name__ == "__main__":
    main(*sys.argv[1:])
