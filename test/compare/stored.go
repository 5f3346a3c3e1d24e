package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// storedInEtcd returns the versions of all values in an etcd, by group and kind, through etcd's gateway for JSON.
func storedInEtcd(ctx context.Context, etcd string) (map[string]any, error) {
	const prefix, end = "/registry/", "/registry0"
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body, err := json.Marshal(map[string]any{"key": encode(prefix), "range_end": encode(end)})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var values struct{ Kvs []struct{ Key, Value []byte } }
	if err := json.NewDecoder(resp.Body).Decode(&values); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	out := map[string]any{}
	for _, kv := range values.Kvs {
		apiVersion, kind, ok := typeOf(kv.Value)
		if !ok {
			continue // a number, as the last allocated address has
		}
		group, version, found := strings.Cut(apiVersion, "/")
		if !found {
			group, version = "", apiVersion
		}
		if kind == "RangeAllocation" || kind == "" {
			continue // no resource
		}
		out[groupName(group)+" "+kind] = version
	}
	return out, nil
}

// typeOf returns the apiVersion and the kind of a stored value, in protobuf (a message k8s.io.apimachinery.pkg.runtime.Unknown
// behind four bytes) or JSON.
func typeOf(value []byte) (apiVersion, kind string, ok bool) {
	if message, ok := bytes.CutPrefix(value, []byte("k8s\x00")); ok {
		meta, ok := field(message, 1)
		if !ok {
			return "", "", false
		}
		v, _ := field(meta, 1)
		k, _ := field(meta, 2)
		return string(v), string(k), true
	}
	var meta struct{ APIVersion, Kind string }
	if json.Unmarshal(value, &meta) != nil || meta.Kind == "" {
		return "", "", false
	}
	return meta.APIVersion, meta.Kind, true
}

// field returns the bytes of the first field of a protobuf message with a number. Only fields with a length may come before.
func field(message []byte, number uint64) ([]byte, bool) {
	const lengthDelimited = 2
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != lengthDelimited {
			return nil, false
		}
		message = message[n:]
		length, n := binary.Uvarint(message)
		if n <= 0 || length > uint64(len(message)-n) {
			return nil, false
		}
		content := message[n : n+int(length)] //nolint:gosec // not larger than the message
		if tag>>3 == number {
			return content, true
		}
		message = message[n+int(length):] //nolint:gosec // as above
	}
	return nil, false
}

// storedByHash returns the version that the storage version hash of each kind says, of the kinds that kube-apiserver has stored.
func (s *server) storedByHash(ctx context.Context, c *comparison) (map[string]any, error) {
	kinds, err := c.commonKinds(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, k := range kinds {
		name := groupName(k.group) + " " + k.kind
		if c.bodies.stored[name] == nil {
			continue
		}
		doc, err := s.get(ctx, groupVersionPath(k.group, k.version), "")
		if err != nil {
			return nil, err
		}
		for _, r := range items(doc["resources"]) {
			if hash := text(r["storageVersionHash"]); text(r["name"]) == k.resource && hash != "" {
				out[name] = versionOfHash(k, hash)
			}
		}
	}
	return out, nil
}

// versionOfHash returns the version of a kind that has a storage version hash: the first eight bytes of the SHA-256 sum of
// GROUP/VERSION/KIND, in base64.
func versionOfHash(k kind, hash string) string {
	const length = 8
	versions := []string{k.version}
	for major := 1; major <= 3; major++ {
		versions = append(versions, fmt.Sprintf("v%d", major))
		for _, stage := range []string{"alpha", "beta"} {
			for n := 1; n <= 5; n++ {
				versions = append(versions, fmt.Sprintf("v%d%s%d", major, stage, n))
			}
		}
	}
	for _, v := range versions {
		sum := sha256.Sum256([]byte(k.group + "/" + v + "/" + k.kind))
		if base64.StdEncoding.EncodeToString(sum[:length]) == hash {
			return v
		}
	}
	return "hash " + hash
}
