package e2e

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// project is a line of testdata/crds/modules.txt: a Go module that contains definitions.
type project struct {
	module, version, sum string
	definitions          string // the folder or file of the module with the definitions
	samples              string // the folder with valid objects; may be empty
}

func (p project) String() string {
	return path.Base(strings.TrimSuffix(p.module, "/v"+majorOf(p.module)))
}

// majorOf returns the major version in a module's path, or "" if there is none.
func majorOf(module string) string {
	if v, ok := strings.CutPrefix(path.Base(module), "v"); ok && strings.Trim(v, "0123456789") == "" {
		return v
	}
	return ""
}

// sample is an object of a kind that a definition has.
type sample struct {
	origin string // the file that contains it
	object map[string]any
}

func (s sample) metadata() map[string]any {
	m, _ := s.object["metadata"].(map[string]any)
	return m
}

// manifests are the definitions and objects of a project.
type manifests struct {
	project
	definitions []*apiextensionsv1.CustomResourceDefinition
	// raw are the definitions as they are in the files.
	raw     []map[string]any
	samples []sample
}

// readProjects reads testdata/crds/modules.txt.
func readProjects(t *testing.T) []project {
	t.Helper()
	content, err := os.ReadFile("testdata/crds/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []project
	for line := range strings.Lines(string(content)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 5 {
			t.Fatalf("modules.txt: %q has %d words, not 5", line, len(f))
		}
		p := project{module: f[0], version: f[1], sum: f[2], definitions: f[3]}
		if f[4] != "-" {
			p.samples = f[4]
		}
		out = append(out, p)
	}
	return out
}

// download returns the path of the module's zip file, from the module cache or the module proxy. It checks the hash in
// modules.txt.
func (p project) download(t *testing.T) string {
	t.Helper()
	c := exec.Command("go", "mod", "download", "-json", p.module+"@"+p.version)
	c.Dir = t.TempDir() // outside of any module, so that go.mod is not changed
	out, err := c.Output()
	var m struct{ Zip, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr != nil {
		t.Fatalf("%s: %v, %v", p.module, err, jsonErr)
	}
	// A module for a newer Go version is reported as an error, but was downloaded.
	if m.Zip == "" {
		t.Fatalf("%s: %s", p.module, m.Error)
	}
	if m.Sum != p.sum {
		t.Fatalf("%s: the sum is %s, not %s", p.module, m.Sum, p.sum)
	}
	return m.Zip
}

// read reads the definitions and samples of a project.
func (p project) read(t *testing.T) *manifests {
	t.Helper()
	z, err := zip.OpenReader(p.download(t))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	m := &manifests{project: p}
	kinds := map[string]bool{}
	var others []*zip.File
	for _, f := range z.File {
		name := strings.TrimPrefix(f.Name, p.module+"@"+p.version+"/")
		if path.Ext(name) != ".yaml" && path.Ext(name) != ".yml" {
			continue
		}
		if !within(name, p.definitions) {
			if p.samples != "" && within(name, p.samples) {
				others = append(others, f)
			}
			continue
		}
		for _, doc := range documents(t, f) {
			if doc["kind"] == "CustomResourceDefinition" {
				m.add(t, doc)
			}
		}
	}
	for _, d := range m.definitions {
		for _, v := range d.Spec.Versions {
			if v.Served {
				kinds[d.Spec.Group+"/"+v.Name+" "+d.Spec.Names.Kind] = true
			}
		}
	}
	for _, f := range others {
		for i, doc := range documents(t, f) {
			if kinds[fmt.Sprint(doc["apiVersion"], " ", doc["kind"])] {
				m.samples = append(m.samples, sample{fmt.Sprintf("%s#%d", f.Name, i), doc})
			}
		}
	}
	if len(m.definitions) == 0 {
		t.Fatalf("%s has no definitions in %s", p.module, p.definitions)
	}
	return m
}

// within reports whether a file is in a folder, or is the file itself. folder may be a list separated by commas; files
// in folders after an exclamation mark are excluded.
func within(name, folders string) bool {
	found := false
	for folder := range strings.SplitSeq(folders, ",") {
		path, excluded := strings.CutPrefix(folder, "!")
		if name == path || strings.HasPrefix(name, path+"/") {
			found = !excluded
		}
	}
	return found
}

func (m *manifests) add(t *testing.T, doc map[string]any) {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	asJSON, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(asJSON, d)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.definitions = append(m.definitions, d)
	m.raw = append(m.raw, doc)
}

// documents returns the objects in a file. A file that is no YAML is a template and is ignored.
func documents(t *testing.T, f *zip.File) []map[string]any {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []map[string]any
	docs := yaml.NewYAMLReader(bufio.NewReader(r))
	for {
		doc, err := docs.Read()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if bytes.Contains(doc, []byte("{{")) && !bytes.Contains(doc, []byte("kind: CustomResourceDefinition")) {
			continue
		}
		var o map[string]any
		if err := sigsyaml.Unmarshal(doc, &o); err == nil && o != nil {
			out = append(out, o)
		}
	}
}
