package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"unicode"
)

const (
	module = "github.com/keelson-dev/keelson"
	root   = "../.."
)

// floor is a folder below internal, with its trees of packages.
type floor struct {
	name string
	// lines are the trees from the lowest to the highest. A tree is a folder with its subfolders, without those that are
	// trees themselves. "." is the folder of the floor.
	lines [][]string
}

// floors are all packages of the product, from the lowest floor to the highest. A package may import its own tree, the
// lines below its own, and the floors below; nothing else of the repository. The tables in docs/ARCHITECTURE.md have the
// same order.
var floors = []floor{
	{"machinery", [][]string{
		{"request", "configfile", "release", "wait", "effort"},
		{"tracing", "metrics", "fairshare"},
		{"scheme", "webhook", "proxy", "features", "activity", "responserecorder"},
		{"cel", "audit"},
	}},
	{"storage", [][]string{{"."}, {"cache"}}},
	{"object", [][]string{
		{"mergeschema", "apierr"},
		{"structuralschema"},
		{"registry", "apiresponse"},
		{"managedfields"},
	}},
	{"resource", [][]string{{".", "quota"}}},
	{"access", [][]string{{"auth"}, {"admission"}}},
	{"api", [][]string{
		{"connection", "history"},
		{"directory", "write"},
		{"client", "discovery"},
		{"changes", "blockers"},
		{"undelete"},
		{"rest"},
		{"crd"},
	}},
	{"controller", [][]string{{"serviceallocator", "serviceresolver"}, {"."}}},
	{"gateway", [][]string{{"flowcontrol"}, {"filter"}, {"aggregator", "peers"}}},
	{"console", [][]string{{"."}}},
	{"server", [][]string{{"."}}},
}

// layers returns the trees of all packages of the repository by their folders, from the lowest to the highest.
func layers() [][]string {
	out := [][]string{{"clock"}, {"config"}}
	for _, f := range floors {
		for _, line := range f.lines {
			var trees []string
			for _, name := range line {
				trees = append(trees, path.Join("internal", f.name, name))
			}
			out = append(out, trees)
		}
	}
	return append(out,
		[]string{"."}, // the embedding API
		[]string{"cmd", "test", "examples"},
	)
}

// free trees are not part of the product: tools of its development.
var free = []string{"internal/gen", "internal/lint"}

// directModules may be imported. Those that are only API types and libraries of
// kube-apiserver's servers are narrowed down in partOfModule.
var directModules = []string{
	"filippo.io/age",
	"github.com/anishathalye/porcupine", // of tests alone: testdata/modules.txt does not have it
	// The client of S3 services. The rest of the SDK is what its configuration of credentials needs.
	"github.com/aws/aws-sdk-go-v2", "github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/credentials",
	"github.com/aws/aws-sdk-go-v2/service/s3", "github.com/aws/smithy-go",
	"github.com/cockroachdb/pebble/v2",
	"github.com/coreos/go-oidc/v3",
	"github.com/fxamacker/cbor/v2",
	"github.com/go-jose/go-jose/v4",
	"github.com/google/cel-go",
	"github.com/google/gnostic-models",
	"github.com/klauspost/compress",
	"github.com/pmezard/go-difflib",
	"github.com/prometheus/client_golang",
	"github.com/prometheus/client_model", // the types of what client_golang gathers
	"github.com/robfig/cron/v3",
	"github.com/spf13/cobra",
	"github.com/spf13/pflag",
	"go.etcd.io/bbolt",
	"go.etcd.io/etcd/api/v3",
	"go.etcd.io/etcd/client/pkg/v3", // the types of the server's settings
	"go.etcd.io/etcd/client/v3",
	"go.etcd.io/etcd/etcdutl/v3", "go.etcd.io/etcd/server/v3", "go.etcd.io/raft/v3",
	"go.opentelemetry.io/otel",
	"go.opentelemetry.io/proto/otlp", // of tests alone, but the exporter is built from it
	"go.uber.org/zap",                // what etcd's client logs through, to lead it to slog
	"golang.org/x/crypto", "golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/term", "golang.org/x/text",
	"golang.org/x/time",
	"google.golang.org/grpc",
	"google.golang.org/protobuf",
	"gopkg.in/evanphx/json-patch.v4",
	"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-openapi", "k8s.io/utils", "k8s.io/klog/v2",
	"k8s.io/streaming", "k8s.io/kms", "k8s.io/externaljwt",
	"k8s.io/component-base",
	"k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator", "k8s.io/pod-security-admission",
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client",
	"sigs.k8s.io/json", "sigs.k8s.io/structured-merge-diff/v6", "sigs.k8s.io/yaml",
}

// partOfModule are the only packages of a module that may be imported: the rest
// is what this repository builds.
var partOfModule = map[string][]string{
	"k8s.io/apiserver": {
		"k8s.io/apiserver/pkg/apis/", "k8s.io/apiserver/pkg/cel",
		// Interfaces that the functions of expressions take.
		"k8s.io/apiserver/pkg/authorization/authorizer", "k8s.io/apiserver/pkg/authentication/user",
	},
	"k8s.io/apiextensions-apiserver": {"k8s.io/apiextensions-apiserver/pkg/apis/"},
	"k8s.io/component-base":          {"k8s.io/component-base/tracing/api/v1"},
	"k8s.io/kube-aggregator":         {"k8s.io/kube-aggregator/pkg/apis/"},
	"k8s.io/pod-security-admission":  {"k8s.io/pod-security-admission/api", "k8s.io/pod-security-admission/policy"},
}

// file is one Go file with what the rules look at.
type file struct {
	path    string // from the root, slashes
	dir     string
	test    bool
	syntax  *ast.File
	imports []string
}

// files returns all Go files of the module. They are parsed once, and must not be changed.
func files(t *testing.T) []file {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var parsed = sync.OnceValues(func() (out []file, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			name := d.Name()
			nested := false
			if rel != "." {
				_, err := os.Stat(filepath.Join(p, "go.mod"))
				nested = err == nil
			}
			if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || nested) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		f := file{path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), syntax: syntax}
		for _, i := range syntax.Imports {
			f.imports = append(f.imports, strings.Trim(i.Path.Value, `"`))
		}
		out = append(out, f)
		return nil
	})
	return out, err
})

// tree returns the tree of a package: the longest folder of the layers that has it, and its layer, or -1.
func tree(dir string) (name string, layer int) {
	layer = -1
	for i, trees := range layers() {
		for _, t := range trees {
			if (dir == t || strings.HasPrefix(dir, t+"/")) && len(t) > len(name) {
				name, layer = t, i
			}
		}
	}
	return name, layer
}

func isFree(dir string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}

func TestPackagesImportOnlyThoseBelow(t *testing.T) {
	for _, f := range files(t) {
		if isFree(f.dir) || f.test {
			continue
		}
		from, level := tree(f.dir)
		if level < 0 {
			t.Errorf("%s is on no floor", f.path)
			continue
		}
		for _, i := range f.imports {
			dir, ok := strings.CutPrefix(i, module)
			if !ok {
				continue
			}
			dir = strings.TrimPrefix(dir, "/")
			if dir == "" {
				dir = "."
			}
			to, below := tree(dir)
			if to != from && (below < 0 || below >= level) {
				t.Errorf("%s (%s) must not import %s", f.path, from, dir)
			}
		}
	}
}

// testSupport are the packages that tests share, and the folder of those below test.
var testSupport = []string{
	"internal/access/admission/admissiontest", "internal/api/client/clienttest",
	"internal/api/write/writetest", "internal/machinery/effort", "internal/machinery/wait",
	"internal/object/structuralschema/internal/sample",
	"internal/resource/internal/kindtest", "internal/server/servertest", "internal/server/servertest/apitest",
	"internal/storage/bucket/buckettest", "internal/storage/encrypt/kmstest", "internal/storage/memoryetcd/etcdtest",
	"internal/storage/storagetest", "test",
}

// isTestSupport reports whether a package is one of testSupport, or below test.
func isTestSupport(dir string) bool {
	return slices.Contains(testSupport, dir) || strings.HasPrefix(dir, "test/")
}

// TestOnlyTestsImportTestSupport checks that nothing of what tests share is built into the product.
func TestOnlyTestsImportTestSupport(t *testing.T) {
	for _, f := range files(t) {
		if f.test || isTestSupport(f.dir) {
			continue
		}
		for _, i := range f.imports {
			if isTestSupport(strings.TrimPrefix(i, module+"/")) {
				t.Errorf("%s imports %s, which is for tests", f.path, i)
			}
		}
	}
}

// untested are the packages that may have no tests of their own, each with the reason.
var untested = map[string]string{
	"internal/storage":               "interfaces and errors; storagetest checks what they promise",
	"internal/controller/csrsigning": "controllertest starts it in a server",
	"internal/controller/quota":      "controllertest starts it in a server",
	"internal/controller/rootca":     "controllertest starts it in a server",
}

// TestEveryPackageHasTests checks that a change of a package can fail a test in that package.
func TestEveryPackageHasTests(t *testing.T) {
	tested := map[string]bool{}
	for _, f := range files(t) {
		tested[f.dir] = tested[f.dir] || f.test
	}
	for dir := range untested {
		if _, ok := tested[dir]; !ok {
			t.Errorf("%s may have no tests, but there is no such package", dir)
		}
	}
	for dir, ok := range tested {
		if !ok && untested[dir] == "" && !isTestSupport(dir) {
			t.Errorf("package %s has no test: write one beside the code, or add the package to untested with the reason", dir)
		}
	}
}

// public are the folders of the packages that programs of others may import.
var public = []string{".", "config", "clock"}

// TestPublicPackages checks that all other packages are below internal, or are no libraries.
func TestPublicPackages(t *testing.T) {
	for _, f := range files(t) {
		name, _, _ := strings.Cut(f.dir, "/")
		switch {
		case name == "internal", name == "cmd", name == "test", name == "examples", slices.Contains(public, f.dir):
		default:
			t.Errorf("%s: everybody could import package %s", f.path, f.dir)
		}
	}
}

// TestOutsidersCannotImport lists the packages of a module outside of the repository that imports a package below internal:
// the go command has to refuse it.
func TestOutsidersCannotImport(t *testing.T) {
	cmd := exec.Command("go", "list", ".")
	cmd.Dir = filepath.Join(root, "test", "modules", "refused")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "use of internal package "+module+"/internal/server not allowed") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// TestTablesOfPackages compares the tables in docs/ARCHITECTURE.md with the floors: each floor is a heading, from the
// highest to the lowest, and each tree a row of the table below it, also from the highest to the lowest.
func TestTablesOfPackages(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	heading := ""
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(line, "### internal/"); ok {
			heading, _, _ = strings.Cut(strings.TrimSpace(name), ":")
			continue
		}
		if strings.HasPrefix(line, "#") {
			heading = ""
		}
		if cell, ok := strings.CutPrefix(line, "| `"); ok && heading != "" {
			name, _, _ := strings.Cut(cell, "`")
			found = append(found, path.Join("internal", heading, strings.TrimSuffix(name, "/*")))
		}
	}
	var want []string
	all := layers()
	slices.Reverse(all)
	for _, trees := range all {
		for _, name := range trees {
			if strings.HasPrefix(name, "internal/") {
				want = append(want, name)
			}
		}
	}
	if !slices.Equal(found, want) {
		t.Errorf("the tables of docs/ARCHITECTURE.md have\n%s\nthe floors have\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// TestConfigImportsNothing checks that the configuration has only types of the standard library and of the package clock.
func TestConfigImportsNothing(t *testing.T) {
	for _, f := range files(t) {
		if f.dir != "config" || f.test {
			continue
		}
		for _, i := range f.imports {
			if strings.Contains(i, ".") && i != module+"/clock" {
				t.Errorf("%s imports %s", f.path, i)
			}
		}
	}
}

func TestStorageInterfaceImportsNothing(t *testing.T) {
	for _, f := range files(t) {
		if f.dir != "internal/storage" || f.test {
			continue
		}
		for _, i := range f.imports {
			if strings.Contains(i, ".") {
				t.Errorf("%s imports %s", f.path, i)
			}
		}
	}
}

// gonePackages are packages of our minor of Kubernetes that the next one does not have.
var gonePackages = []string{"k8s.io/api/apidiscovery/v2beta1"}

// TestNoPackageIsGone checks that what programs import compiles with the next minor of Kubernetes. Tests count: go mod
// tidy of such a program reads them as well.
func TestNoPackageIsGone(t *testing.T) {
	for _, f := range files(t) {
		if name, _ := tree(f.dir); name == "test" || isFree(f.dir) {
			continue
		}
		for _, i := range f.imports {
			if slices.Contains(gonePackages, i) {
				t.Errorf("%s imports %s, which the next minor of Kubernetes does not have", f.path, i)
			}
		}
	}
}

func TestModulesAreOfTheList(t *testing.T) {
	for _, f := range files(t) {
		for _, i := range f.imports {
			if first, _, _ := strings.Cut(i, "/"); !strings.Contains(first, ".") || i == module ||
				strings.HasPrefix(i, module+"/") {
				continue
			}
			if i == "k8s.io/kubernetes" || strings.HasPrefix(i, "k8s.io/kubernetes/") {
				t.Errorf("%s: k8s.io/kubernetes is never a dependency", f.path)
			}
			m := ""
			for _, allowed := range directModules {
				if (i == allowed || strings.HasPrefix(i, allowed+"/")) && len(allowed) > len(m) {
					m = allowed
				}
			}
			if m == "" {
				t.Errorf("%s: %s is of no module that may be imported", f.path, i)
				continue
			}
			if parts, narrow := partOfModule[m]; narrow && !hasPrefix(i, parts) {
				t.Errorf("%s: %s is not among the parts of %s that may be imported", f.path, i, m)
			}
		}
	}
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// TestNoOtherModuleIsBuiltIn compares the modules in the built program, including indirect ones, with modules.txt. A
// new line in modules.txt is a decision to explain in docs/decisions.
func TestNoOtherModuleIsBuiltIn(t *testing.T) {
	content, err := os.ReadFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for _, line := range strings.Split(string(content), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			allowed[line] = true
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cmd/...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range strings.Fields(string(out)) {
		if m != module && !seen[m] && !allowed[m] {
			t.Errorf("%s is built into the product but not in testdata/modules.txt", m)
		}
		seen[m] = true
	}
	for m := range allowed {
		if !seen[m] {
			t.Errorf("testdata/modules.txt has %s, which is not built into the product any more", m)
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range files(t) {
		if !f.test {
			documented[f.dir] = documented[f.dir] || f.syntax.Doc.Text() != ""
		}
	}
	var missing []string
	for dir, ok := range documented {
		if !ok {
			missing = append(missing, dir)
		}
	}
	sort.Strings(missing)
	for _, dir := range missing {
		t.Errorf("package %s has no comment", dir)
	}
}

// TestNothingRegistersItself: what a program does is decided where it is put
// together, not by what it imports.
func TestNothingRegistersItself(t *testing.T) {
	for _, f := range files(t) {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function", f.path)
			}
		}
	}
}

// owned are functions and methods that only some packages or files may call, because what they do is limited there, and why.
// A function is written with its package, a method without.
var owned = []struct {
	calls  []string
	owners []string
	why    string
}{
	{
		[]string{"labels.Parse", "labels.ParseToRequirements", "fields.ParseSelector", "fields.ParseSelectorOrDie", "metav1.ParseToLabelSelector"},
		[]string{"internal/machinery/request/selector.go", "cmd/keelson/kubectlhistory/"},
		"selectors of requests are parsed with limits by request.ServedLabels and request.ServedFields",
	},
	{
		[]string{".Authorize"},
		[]string{
			"internal/access/auth/", "internal/gateway/filter/", "internal/server/authorization/",
			"internal/access/admission/celvars/authorizer.go", // policies ask about other users too
		},
		"a further permission for a request is asked for by authz.Further, which knows constrained impersonation",
	},
}

// TestOwnedCalls: who calls a function around its limits is found when it is written.
func TestOwnedCalls(t *testing.T) {
	for _, o := range owned {
		used := make([]bool, len(o.owners))
		for _, f := range files(t) {
			if f.test || !strings.HasPrefix(f.path, "internal/") && !strings.HasPrefix(f.path, "cmd/") || strings.Contains(f.path, "/servertest/") {
				continue
			}
			owner := slices.IndexFunc(o.owners, func(prefix string) bool { return strings.HasPrefix(f.path, prefix) })
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				name, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				names := []string{"." + name.Sel.Name}
				if of, ok := name.X.(*ast.Ident); ok {
					names = append(names, of.Name+"."+name.Sel.Name)
				}
				switch called := slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o.calls, n) }); {
				case called && owner < 0:
					t.Errorf("%s calls %s: %s", f.path, names[len(names)-1], o.why)
				case called:
					used[owner] = true
				}
				return true
			})
		}
		for i, found := range used {
			if !found {
				t.Errorf("%s calls none of %v: the rule is out of date", o.owners[i], o.calls)
			}
		}
	}
}

// TestCommentsBeginWithTheirName: the comment of a declaration begins with its name, perhaps after an article.
func TestCommentsBeginWithTheirName(t *testing.T) {
	for _, f := range files(t) {
		for _, d := range f.syntax.Decls {
			doc, names := documented(d)
			if doc == nil || len(names) == 0 || doc.Text() == "" { // a directive alone has no text
				continue
			}
			words := strings.FieldsFunc(doc.Text(), func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
			if len(words) > 1 && slices.Contains([]string{"A", "An", "The"}, words[0]) {
				words = words[1:]
			}
			if len(words) == 0 || !slices.Contains(names, words[0]) && words[0] != "Deprecated" {
				t.Errorf("%s: the comment of %s does not begin with its name: %.60q", f.path, names[0], doc.Text())
			}
		}
	}
}

// documented returns the comment of a declaration and the names that it declares; none for those in a group, whose comment
// is about all of them.
func documented(d ast.Decl) (doc *ast.CommentGroup, names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc, []string{d.Name.Name}
	case *ast.GenDecl:
		if d.Lparen.IsValid() || len(d.Specs) != 1 {
			return nil, nil
		}
		switch s := d.Specs[0].(type) {
		case *ast.TypeSpec:
			names = []string{s.Name.Name}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				names = append(names, name.Name)
			}
		}
		return d.Doc, names
	}
	return nil, nil
}

// TestOnePhrase: a comment about a truth value says "reports whether".
func TestOnePhrase(t *testing.T) {
	for _, f := range files(t) {
		for _, group := range f.syntax.Comments {
			for _, phrase := range []string{"returns whether", "tells whether"} {
				if strings.Contains(group.Text(), phrase) {
					t.Errorf("%s: %q in a comment: write reports whether: %.80q", f.path, phrase, group.Text())
				}
			}
		}
	}
}

// documents returns the contents of the repository's documents by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "examples/*/README.md", "test/*/README.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			content, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			out[page] = string(content)
		}
	}
	return out
}

// TestPathsInDocuments: a path below internal, or in a folder of the root, that a document names exists.
func TestPathsInDocuments(t *testing.T) {
	const folders = `cmd|config|clock|docs|examples|internal|packaging|test`
	name := regexp.MustCompile("`(?:\\./)?((?:" + folders + ")/[A-Za-z0-9_./*-]+)`")
	paths := 0
	for page, content := range documents(t) {
		for _, m := range name.FindAllStringSubmatch(content, -1) {
			paths++
			if found, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if paths == 0 {
		t.Error("no document names a path: the test looks for the wrong thing")
	}
}

// TestLinksInDocuments checks that a link to a file or a heading of the repository finds it, and that docs/README.md has
// a link to every page in docs.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)`)
	notInAnchor := regexp.MustCompile(`[^a-z0-9_ -]`)
	all := documents(t)
	anchors := map[string][]string{}
	for page, content := range all {
		for _, m := range heading.FindAllStringSubmatch(content, -1) {
			anchor := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
			anchors[page] = append(anchors[page], strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	index := filepath.Join(root, "docs", "README.md")
	linked := map[string]bool{index: true}
	for page, content := range all {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s has a link to %s, which does not exist", page, target)
			}
			if m[2] != "" && !slices.Contains(anchors[target], m[2]) {
				t.Errorf("%s has a link to the heading #%s of %s, which does not exist", page, m[2], target)
			}
			linked[target] = linked[target] || page == index
		}
	}
	for page := range all {
		if filepath.Dir(page) == filepath.Dir(index) && !linked[page] {
			t.Errorf("%s has no link to %s", index, page)
		}
	}
}

// TestUserPagesNameNoPackages: pages for users say what the server does, and not in which package.
func TestUserPagesNameNoPackages(t *testing.T) {
	forContributors := []string{"ARCHITECTURE.md", "maintaining.md", "new-minor.md", "performance.md", "releasing.md", "reliability.md", "testing.md"}
	for page, content := range documents(t) {
		if filepath.Dir(page) != filepath.Join(root, "docs") || slices.Contains(forContributors, filepath.Base(page)) {
			continue
		}
		if i := strings.Index(content, "internal/"); i >= 0 {
			t.Errorf("%s names a package: %.60q", page, content[max(0, i-20):])
		}
	}
}
