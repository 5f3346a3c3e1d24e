package registry_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/cache"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// dumpVar names the environment variable of another dump to use instead of the
// one in testdata, which has one entry of each shape.
const dumpVar = "KEELSON_ETCD_DUMP"

// dumped is an entry that kube-apiserver 1.36 wrote to etcd, and the object as it
// served it.
type dumped struct {
	Key, Path string
	Value     []byte
	Object    map[string]any
}

func readDump(t *testing.T) []dumped {
	t.Helper()
	name := os.Getenv(dumpVar)
	if name == "" {
		name = "testdata/etcd-dump.jsonl.gz"
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	var out []dumped
	for lines.Scan() {
		var d dumped
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestReferenceData puts the entries that kube-apiserver stored into a store. It compares the served objects with
// those that kube-apiserver served, and the entries that would be stored again with the original ones.
func TestReferenceData(t *testing.T) {
	ctx := context.Background()
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	dump := readDump(t)
	unique := map[string][]byte{}
	for _, d := range dump {
		if unique[d.Key] != nil {
			continue // one stored object, served in two versions
		}
		unique[d.Key] = d.Value
		if _, err := store.Commit(ctx, storage.Txn{Ops: []storage.Op{storage.Put(d.Key, d.Value)}}); err != nil {
			t.Fatal(err)
		}
	}
	c := cache.New(cache.Options{Store: store})
	defer c.Close()
	kinds := resource.Kinds(features.Gates{})
	all, err := registry.New(kinds, store, c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	skipped := map[string]int{}
	checked := map[*registry.Kind]int{}
	for _, d := range dump {
		addOf137(d.Object)
		r, key := resourceOf(all, d.Key)
		if r == nil {
			group, _, _ := strings.Cut(strings.TrimPrefix(d.Key, registry.Root), "/")
			skipped[group]++
			continue
		}
		checked[r.Kind]++
		if err := checkServed(ctx, r, key, d); err != nil {
			t.Errorf("%s: %v", d.Key, err)
		}
		if err := checkStored(ctx, store, r, key, d); err != nil {
			t.Errorf("%s: %v", d.Key, err)
		}
	}
	for _, k := range kinds {
		// The dump is of a server with the default versions.
		if k.Storage.Path != "" && checked[k] == 0 && !k.Versions[0].Disabled && !newIn137(k) {
			t.Errorf("no stored %s", k.GroupResource())
		}
	}
	// Custom resources have no kind here; the other entries belong to no resource.
	want := []string{"dump.example.com", "masterleases", "peerserverleases", "ranges"}
	for _, group := range want {
		if skipped[group] == 0 {
			t.Errorf("no entry of %s", group)
		}
		delete(skipped, group)
	}
	for group, n := range skipped {
		t.Errorf("%d entries of %s belong to no kind", n, group)
	}
}

func resourceOf(all *registry.Registry, key string) (*registry.Resource, string) {
	for _, r := range all.Resources() {
		if rest, ok := strings.CutPrefix(key, registry.Root+r.Kind.Storage.Path+"/"); ok && r.Kind.Storage.Path != "" {
			if strings.Contains(rest, "/") == r.Kind.Namespaced {
				return r, rest
			}
		}
	}
	return nil, ""
}

// checkServed compares every field of the served object, in JSON and in protobuf, in the version of the entry.
func checkServed(ctx context.Context, r *registry.Resource, key string, d dumped) error {
	snap, err := r.Reader.Current(ctx)
	if err != nil {
		return err
	}
	o, ok, _ := snap.Get(ctx, key)
	if !ok {
		return fmt.Errorf("not found")
	}
	if o.Err() != nil {
		return o.Err()
	}
	if d.Object == nil {
		return nil // kube-apiserver did not show it
	}
	version := versionOf(r.Kind, d.Object["apiVersion"].(string))
	if version == nil {
		return fmt.Errorf("no version %v", d.Object["apiVersion"])
	}
	alone, err := r.Renderer.MetadataJSON(ctx, o) // before the cache has the item JSON
	if err != nil {
		return err
	}
	item, err := r.Renderer.ItemJSON(ctx, o, version)
	if err != nil {
		return err
	}
	part, _, _, _, err := wire.Member(item, "metadata")
	if err == nil {
		part, err = r.Renderer.ShownMetadata(part)
	}
	if err != nil || version.FromStorage == nil && !bytes.Equal(part, alone) {
		return fmt.Errorf("metadata alone is %s, of the item %s (%v)", alone, part, err)
	}
	want := map[string]any{}
	for name, value := range d.Object {
		want[name] = value
	}
	delete(want, "apiVersion")
	delete(want, "kind")
	metadata := want["metadata"].(map[string]any)
	metadata["resourceVersion"] = strconv.FormatInt(o.Revision, 10)
	if err := sameJSON(item, want); err != nil {
		return err
	}
	raw, err := r.Renderer.ItemProto(ctx, o, version)
	if err != nil {
		return err
	}
	obj := version.New()
	if err := scheme.DecodeProto(raw, obj); err != nil {
		return err
	}
	if r.Kind.Storage.AfterDecode != nil {
		r.Kind.Storage.AfterDecode(obj)
	}
	again, err := scheme.EncodeItem(obj)
	if err != nil {
		return err
	}
	if err := sameJSON(again, want); err != nil {
		return fmt.Errorf("protobuf: %w", err)
	}
	if meta, err := r.Renderer.MetadataJSON(ctx, o); err != nil {
		return err
	} else if err := sameJSON(meta, withoutAnnotation(metadata, r.Kind.Metadata.HiddenAnnotation)); err != nil &&
		version.FromStorage == nil {
		return fmt.Errorf("metadata: %w", err)
	}
	// The cache keeps the item JSON.
	before := r.Decoder.Decodes()
	if _, err := r.Renderer.ItemJSON(ctx, o, version); err != nil || r.Decoder.Decodes() != before {
		return fmt.Errorf("the second read decoded the object, error %v", err)
	}
	return nil
}

// storedOtherwise has the kinds that 1.37 stores differently from 1.36, which has written the data: in another
// version, or with another field.
var storedOtherwise = map[string]bool{
	"CSIDriver": true, "CSINode": true, "StatefulSet": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
}

// newIn137 reports whether 1.36 did not serve a kind by default.
func newIn137(k *registry.Kind) bool {
	v, ok := k.Versions[0].New().(interface{ APILifecycleIntroduced() (major, minor int) })
	if !ok {
		return false
	}
	_, minor := v.APILifecycleIntroduced()
	return minor >= 37
}

// addOf137 adds the fields that 1.37 adds to an object that 1.36 has stored.
func addOf137(object map[string]any) {
	switch object["kind"] {
	case "CSINode":
		object["status"] = map[string]any{}
	case "CSIDriver":
		spec := object["spec"].(map[string]any)
		if spec["preventPodSchedulingIfMissing"] == nil {
			spec["preventPodSchedulingIfMissing"] = false
		}
	case "StatefulSet":
		strategy, _ := object["spec"].(map[string]any)["updateStrategy"].(map[string]any)
		if u, ok := strategy["rollingUpdate"].(map[string]any); ok && u["maxUnavailable"] == nil {
			u["maxUnavailable"] = float64(1)
		}
	}
}

func versionOf(k *registry.Kind, apiVersion string) *registry.Version {
	group, name, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, name = "", apiVersion
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		if v.Name == name && (v.Group == group || v.Group == "" && k.Group == group) {
			return v
		}
	}
	return nil
}

func sameJSON(got []byte, want map[string]any) error {
	var tree map[string]any
	if err := json.Unmarshal(got, &tree); err != nil {
		return err
	}
	if reflect.DeepEqual(tree, want) {
		return nil
	}
	text, _ := json.Marshal(want)
	canonical, _ := json.Marshal(tree)
	return fmt.Errorf("serves\n%s\nwant\n%s", canonical, text)
}

// checkStored encodes the object again; and changes it, and changes it back.
func checkStored(ctx context.Context, store storage.Store, r *registry.Resource, key string, d dumped) error {
	again, err := r.Reencode(d.Value)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, d.Value) && !storedOtherwise[r.Kind.Name] {
		return fmt.Errorf("stored again as\n%q\nwas\n%q", again, d.Value)
	}
	const name = "example.com/changed"
	for _, change := range []func(map[string]string){
		func(a map[string]string) { a[name] = "yes" },
		func(a map[string]string) { delete(a, name) },
	} {
		namespace, object, _ := strings.Cut(key, "/")
		if !r.Kind.Namespaced {
			namespace, object = "", key
		}
		changed, err := writer.Amend(ctx, r, namespace, object, false, func(obj registry.Object) error {
			annotations := obj.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			change(annotations)
			obj.SetAnnotations(annotations)
			return nil
		})
		if err != nil {
			return err
		}
		if changed.GetName() != path.Base(object) {
			return fmt.Errorf("%s after a change of %s", changed.GetName(), object)
		}
	}
	e, _, err := store.Get(ctx, d.Key, 0)
	if err != nil || bytes.Equal(e.Value, d.Value) {
		return err
	}
	if again, err = r.Reencode(e.Value); err != nil {
		return err
	}
	differs := r.Kind.Storage.DefaultOnRead != nil && len(e.Value) > len(d.Value) || storedOtherwise[r.Kind.Name]
	if !differs || !bytes.Equal(again, e.Value) {
		return fmt.Errorf("changed and changed back it is stored as\n%q\nwas\n%q", e.Value, again)
	}
	return nil // the defaults it lacked are stored now
}

// withoutAnnotation removes an annotation that only responses with the whole object contain.
func withoutAnnotation(metadata map[string]any, hidden string) map[string]any {
	if annotations, ok := metadata["annotations"].(map[string]any); ok && hidden != "" {
		if delete(annotations, hidden); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return metadata
}
