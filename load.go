package keelson

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// loadManager is the field manager of loaded objects.
const loadManager = "keelson-load"

// Load applies the objects in files. Of a folder and its subfolders, it reads the files with the endings .yaml,
// .yml and .json, in the order of their names. A file can have several documents, and Lists.
// CustomResourceDefinitions are applied first and then Namespaces, wherever they are; Load waits until custom
// resources are served. An object without a namespace is in the namespace default. An existing object is changed
// (by a server-side apply with force), so files may be loaded again. If Load fails, the error names the path of
// the file, the number of the document in it and the object. Objects that were applied before stay.
func (s *Server) Load(ctx context.Context, paths ...string) error {
	var all []document
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			p += string(filepath.Separator) // WalkDir follows a symbolic link that ends with it
		}
		documents, err := readDocuments(p, filepath.WalkDir, os.ReadFile)
		if err != nil {
			return err
		}
		all = append(all, documents...)
	}
	return s.load(ctx, all)
}

// LoadFS works as Load, for files and folders of a file system, such as an embed.FS.
func (s *Server) LoadFS(ctx context.Context, fsys fs.FS, paths ...string) error {
	walk := func(root string, visit fs.WalkDirFunc) error { return fs.WalkDir(fsys, root, visit) }
	read := func(name string) ([]byte, error) { return fs.ReadFile(fsys, name) }
	var all []document
	for _, p := range paths {
		documents, err := readDocuments(path.Clean(p), walk, read)
		if err != nil {
			return err
		}
		all = append(all, documents...)
	}
	return s.load(ctx, all)
}

// document is an object of a file.
type document struct {
	place  string // the file and the number of the document in it, for errors
	object *unstructured.Unstructured
}

// String returns the name of the object in errors.
func (d *document) String() string {
	return fmt.Sprintf("%s: %s %s", d.place, d.object.GetKind(), d.object.GetName()+d.object.GetGenerateName())
}

// phase returns the order of loading: documents with smaller numbers are loaded first.
func (d *document) phase() int {
	switch d.object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return 0
	case schema.GroupKind{Kind: "Namespace"}:
		return 1
	}
	return 2
}

// readDocuments reads a file, or the files of a folder. Errors of walk and read have to name the path.
func readDocuments(
	root string, walk func(root string, visit fs.WalkDirFunc) error, read func(name string) ([]byte, error),
) ([]document, error) {
	var out []document
	err := walk(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if name != root && !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return nil
		}
		content, err := read(name)
		if err != nil {
			return err
		}
		documents, err := parseDocuments(name, content)
		out = append(out, documents...)
		return err
	})
	return out, err
}

// parseDocuments returns the objects of a file. Documents that are empty or have only comments are left out, but counted.
func parseDocuments(file string, content []byte) ([]document, error) {
	var out []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for n := 1; ; n++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		place := fmt.Sprintf("%s: document %d", file, n)
		var fields map[string]any
		if err == nil {
			err = yaml.Unmarshal(part, &fields)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if len(fields) == 0 {
			continue
		}
		objects, err := objectsOf(place, &unstructured.Unstructured{Object: fields})
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
}

// objectsOf returns the object at place, or the objects of a List.
func objectsOf(place string, obj *unstructured.Unstructured) (out []document, err error) {
	if obj.GetAPIVersion() == "" || obj.GetKind() == "" {
		return nil, fmt.Errorf("%s has no apiVersion or no kind", place)
	}
	if !obj.IsList() {
		return []document{{place, obj}}, nil
	}
	n := 0
	err = obj.EachListItem(func(item runtime.Object) error {
		n++
		objects, err := objectsOf(fmt.Sprintf("%s, item %d", place, n), item.(*unstructured.Unstructured))
		out = append(out, objects...)
		return err
	})
	return out, err
}

// load applies documents.
func (s *Server) load(ctx context.Context, documents []document) error {
	slices.SortStableFunc(documents, func(a, b document) int { return a.phase() - b.phase() })
	l, err := newLoader(s.RESTConfig())
	if err != nil {
		return err
	}
	for i, d := range documents {
		if i > 0 && d.phase() > 0 && documents[i-1].phase() == 0 {
			if err := l.waitForDefinitions(ctx, documents[:i]); err != nil {
				return err
			}
		}
		if err := l.apply(ctx, d.object); err != nil {
			return fmt.Errorf("%s: %w", &d, err)
		}
	}
	if n := len(documents); n > 0 && documents[n-1].phase() == 0 {
		return l.waitForDefinitions(ctx, documents)
	}
	return nil
}

// loader applies objects of any kind.
type loader struct {
	client *rest.RESTClient
	// resources has the resources of each group and version that was already requested from discovery.
	resources map[schema.GroupVersion][]metav1.APIResource
}

func newLoader(c *rest.Config) (*loader, error) {
	types := runtime.NewScheme()
	metav1.AddToGroupVersion(types, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	c.GroupVersion, c.APIPath = &schema.GroupVersion{}, "/"
	client, err := rest.UnversionedRESTClientFor(c)
	return &loader{client: client, resources: map[schema.GroupVersion][]metav1.APIResource{}}, err
}

// apply applies an object. If only generateName is set, it creates the object instead.
func (l *loader) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	resource, err := l.resource(ctx, gvk)
	if err != nil {
		return err
	}
	segments := append(versionPath(gvk.GroupVersion()), resource.Name)
	if resource.Namespaced {
		if obj.GetNamespace() == "" {
			obj.SetNamespace(metav1.NamespaceDefault)
		}
		segments = append(versionPath(gvk.GroupVersion()), "namespaces", obj.GetNamespace(), resource.Name)
	}
	body, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	request := l.client.Post()
	if obj.GetName() != "" || obj.GetGenerateName() == "" {
		request, segments = l.client.Patch(types.ApplyPatchType).Param("force", "true"), append(segments, obj.GetName())
	}
	return request.AbsPath(segments...).Param("fieldManager", loadManager).
		SetHeader("Accept", "application/json").Body(body).Do(ctx).Error()
}

func versionPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"api", gv.Version}
	}
	return []string{"apis", gv.Group, gv.Version}
}

func (l *loader) resource(ctx context.Context, gvk schema.GroupVersionKind) (*metav1.APIResource, error) {
	gv := gvk.GroupVersion()
	list, ok := l.resources[gv]
	if !ok {
		content, err := l.client.Get().AbsPath(versionPath(gv)...).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s is not served: %w", gv, err)
		}
		var found metav1.APIResourceList
		if err := yaml.Unmarshal(content, &found); err != nil {
			return nil, err
		}
		list = found.APIResources
		l.resources[gv] = list
	}
	for i := range list {
		if list[i].Kind == gvk.Kind && !strings.Contains(list[i].Name, "/") {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no kind %s", gv, gvk.Kind)
}

// waitForDefinitions waits until the custom resources of the definitions are served.
func (l *loader) waitForDefinitions(ctx context.Context, definitions []document) error {
	const pause = 2 * time.Millisecond
	for _, d := range definitions {
		for {
			served, err := l.established(ctx, d.object.GetName())
			if err != nil {
				return fmt.Errorf("%s: %w", &d, err)
			}
			if served {
				break
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return fmt.Errorf("%s: its custom resources are not served yet: %w", &d, ctx.Err())
			}
		}
	}
	clear(l.resources)
	return nil
}

// errNamesTaken means that a definition will never be served.
var errNamesTaken = errors.New("the names of the definition conflict with those of another one")

// established reports whether the custom resources of a definition are served.
func (l *loader) established(ctx context.Context, name string) (bool, error) {
	content, err := l.client.Get().AbsPath("apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", name).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return false, err
	}
	var crd struct {
		Status struct{ Conditions []metav1.Condition }
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return false, err
	}
	for _, c := range crd.Status.Conditions {
		switch {
		case c.Type == "Established" && c.Status == metav1.ConditionTrue:
			return true, nil
		case c.Type == "NamesAccepted" && c.Status == metav1.ConditionFalse:
			return false, fmt.Errorf("%w: %s", errNamesTaken, c.Message)
		}
	}
	return false, nil
}
