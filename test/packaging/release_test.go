//go:build linux

package packaging

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/server/version"
)

const (
	tag     = "v" + version.Keelson
	program = "github.com/keelson-dev/keelson/cmd/keelson"
)

// release is a release that is built from a tag in a temporary clone.
type release struct {
	clone  string
	dist   string // what release.sh wrote
	commit string
	tools  string // the program of packaging/tools
	public string // the file of the public key
	secret string
}

// command runs a command in a directory and returns its output. The environment is extended.
func command(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// must is command for those that have to succeed.
func must(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := command(t, dir, env, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TestRelease builds a release for this platform from a tag of HEAD, without what is not committed, and tries each of its
// files. It takes some minutes of processor time, so it runs only with KEELSON_RELEASE=1. It needs Linux, for which the
// Debian package and the image are.
func TestRelease(t *testing.T) {
	if os.Getenv("KEELSON_RELEASE") == "" {
		t.Skip("set KEELSON_RELEASE=1 to build a release")
	}
	dir := t.TempDir()
	r := release{
		clone: filepath.Join(dir, "clone"), tools: filepath.Join(dir, "tools"),
		public: filepath.Join(dir, "keelson.pub"), secret: filepath.Join(dir, "keelson.key"),
	}
	must(t, root, nil, "git", "clone", "--quiet", "--no-tags", ".", r.clone)
	r.commit = strings.TrimSpace(must(t, r.clone, nil, "git", "rev-parse", "HEAD"))
	must(t, r.clone, nil, "go", "build", "-C", "packaging/tools", "-buildvcs=false", "-o", r.tools, ".")
	must(t, dir, nil, r.tools, "keygen", r.secret, r.public)

	r.refuses(t, "no tag", "has no tag "+tag)
	must(t, r.clone, nil, "git", "tag", "v99.0.0")
	r.refuses(t, "the tag of another number", "has no tag "+tag)
	must(t, r.clone, nil, "git", "tag", tag)
	extra := filepath.Join(r.clone, "extra")
	if err := os.WriteFile(extra, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.refuses(t, "a file that is not committed", "has changes")
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}

	// Two builds, from clones at different places and with different masks of permissions.
	r.dist = r.build(t, "umask 022")
	moved := r
	moved.clone = filepath.Join(dir, "elsewhere", "keelson")
	if err := os.MkdirAll(filepath.Dir(moved.clone), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(r.clone, moved.clone); err != nil {
		t.Fatal(err)
	}
	second := moved.build(t, "umask 077")
	r.clone = moved.clone
	sums, _ := os.ReadFile(filepath.Join(r.dist, "SHA256SUMS"))
	again, _ := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	if !bytes.Equal(sums, again) || bytes.Count(sums, []byte("\n")) != 5 {
		t.Fatalf("two builds differ, or are not of five files:\n%s\n%s", sums, again)
	}

	t.Run("checksums", func(t *testing.T) { must(t, r.dist, nil, "sha256sum", "--check", "--strict", "SHA256SUMS") })
	t.Run("signature", r.testSignature)
	t.Run("archive", r.testArchive)
	t.Run("bill of materials", r.testBill)
	t.Run("Debian package", r.testDeb)
	t.Run("image", r.testImage)
	t.Run("formula", r.testFormula)
	t.Run("action", r.testAction)
	t.Run("module", r.testModule)
}

// refuses checks that release.sh builds nothing, and says why.
func (r release) refuses(t *testing.T, title, message string) {
	t.Helper()
	dist := t.TempDir()
	out, err := command(t, r.clone, []string{"KEELSON_UNTAGGED="}, "packaging/release.sh", dist)
	if err == nil || !strings.Contains(out, message) {
		t.Errorf("%s: %v, want a failure that says %q:\n%s", title, err, message, out)
	}
	if files, _ := os.ReadDir(dist); len(files) > 0 {
		t.Errorf("%s: there are files", title)
	}
}

// build runs release.sh for this platform, and returns the directory with the files.
func (r release) build(t *testing.T, before string) string {
	t.Helper()
	dist := t.TempDir()
	must(t, r.clone, []string{"KEELSON_SIGNING_KEY=" + r.secret, "KEELSON_UNTAGGED="},
		"bash", "-c", before+`; exec packaging/release.sh "$@"`, "bash", dist, "linux/"+runtime.GOARCH)
	return dist
}

// name returns the path of a file of the release.
func (r release) name(rest string) string {
	return filepath.Join(r.dist, "keelson_"+version.Keelson+"_"+strings.ReplaceAll(rest, "ARCH", runtime.GOARCH))
}

func (r release) testSignature(t *testing.T) {
	sums := filepath.Join(r.dist, "SHA256SUMS")
	must(t, r.dist, nil, r.tools, "verify", sums, r.public)
	changed := filepath.Join(t.TempDir(), "SHA256SUMS")
	for suffix, more := range map[string]string{"": "0  other\n", ".minisig": ""} {
		content, err := os.ReadFile(sums + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(changed+suffix, append(content, more...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command(t, r.dist, nil, r.tools, "verify", changed, r.public); err == nil {
		t.Errorf("the signature of a changed file is valid: %s", out)
	}
}

func (r release) testArchive(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, nil, "tar", "-xzf", r.name("linux_ARCH.tar.gz"), "--strip-components=1")
	for _, want := range []string{"keelson", "LICENSE", "man/keelson.1", "completions/keelson.bash", "keelson.service"} {
		if info, err := os.Stat(filepath.Join(dir, want)); err != nil || info.Size() == 0 {
			t.Errorf("the archive has no %s: %v", want, err)
		}
	}
	file, err := elf.Open(filepath.Join(dir, "keelson"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the program needs %q %v", libraries, err)
	}
	r.checkBuild(t, serve(t, exec.Command(filepath.Join(dir, "keelson")), t.TempDir()))
}

// checkBuild checks that /version has the commit of the release and its date.
func (r release) checkBuild(t *testing.T, v apiversion.Info) {
	t.Helper()
	stamp := strings.TrimSpace(must(t, r.clone, []string{"TZ=UTC"}, "git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"))
	if v.GitCommit != r.commit || v.GitTreeState != "clean" || v.BuildDate != stamp {
		t.Errorf("/version: %+v, want commit %s of %s", v, r.commit, stamp)
	}
}

// serve starts a server and returns what /version answers once /readyz is 200. The command is the program without arguments, and
// data the directory as the program sees it.
func serve(t *testing.T, c *exec.Cmd, data string) apiversion.Info {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c.Args = append(c.Args, "serve", "--data-dir="+data, "--bind-address=127.0.0.1", "--secure-port="+port)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = c.Process.Kill()
			t.Error("the server did not end within a minute after SIGTERM")
		}
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its own
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	get := func(path string) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		return body, err
	}
	for {
		_, err := get("/readyz")
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server has ended: %v\n%s", err, log.String())
		case <-ctx.Done():
			t.Fatalf("/readyz did not become 200 within a minute: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	body, err := get("/version")
	if err != nil {
		t.Fatal(err)
	}
	var v apiversion.Info
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (r release) testBill(t *testing.T) {
	content, err := os.ReadFile(r.name("linux_ARCH.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Parts []struct{ Name, Version string } `json:"components"`
	}
	if err := json.Unmarshal(content, &bill); err != nil {
		t.Fatal(err)
	}
	if c := bill.Metadata.Component; bill.Format != "CycloneDX" || c.Name != "github.com/keelson-dev/keelson" || c.Version != tag {
		t.Errorf("the bill is a %s of %+v", bill.Format, c)
	}
	found := map[string]string{}
	for _, part := range bill.Parts {
		found[part.Name] = part.Version
	}
	for _, module := range []string{"k8s.io/api", "github.com/cockroachdb/pebble/v2"} {
		want := strings.TrimSpace(must(t, r.clone, nil, "go", "list", "-m", "-f", "{{.Version}}", module))
		if found[module] != want {
			t.Errorf("%s has version %q, want %q", module, found[module], want)
		}
	}
}

func (r release) testDeb(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	dir := t.TempDir()
	must(t, dir, nil, "dpkg-deb", "--extract", r.name("ARCH.deb"), dir)
	if got := must(t, dir, nil, "dpkg-deb", "--field", r.name("ARCH.deb"), "Version"); strings.TrimSpace(got) != version.Keelson {
		t.Errorf("the version is %q", got)
	}
	for _, want := range []string{
		"etc/default/keelson", "usr/lib/systemd/system/keelson.service", "usr/share/man/man1/keelson.1.gz",
		"usr/share/doc/keelson/copyright", "usr/share/doc/keelson/changelog.gz", "usr/share/bash-completion/completions/keelson",
	} {
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Error(err)
		}
	}
	if out := must(t, dir, nil, filepath.Join(dir, "usr/bin/kubectl-history"), "--help"); !strings.Contains(out, "kubectl history") {
		t.Errorf("the plug-in of kubectl prints %s", out)
	}
	r.checkBuild(t, serve(t, exec.Command(filepath.Join(dir, "usr/bin/keelson")), t.TempDir()))
}

// testImage unpacks the image and runs the program in it, as root with the image as the root of its files and as the user
// of the image. That user can write nothing but /data, as with a read-only root file system.
func (r release) testImage(t *testing.T) {
	layoutDir := t.TempDir()
	must(t, layoutDir, nil, "tar", "-xf", r.name("image.tar"))
	type descriptor struct {
		Digest   string
		Platform struct{ OS, Architecture string }
	}
	type manifest struct {
		Manifests []descriptor
		Config    descriptor
		Layers    []descriptor
	}
	load := func(path string, to any) {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content, to); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	blob := func(d descriptor) string {
		t.Helper()
		path := filepath.Join(layoutDir, "blobs", strings.ReplaceAll(d.Digest, ":", "/"))
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest {
			t.Errorf("%s has another checksum", path)
		}
		return path
	}
	var top, index, image manifest
	load(filepath.Join(layoutDir, "index.json"), &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("index.json: %+v", top)
	}
	load(blob(top.Manifests[0]), &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("the index: %+v", index)
	}
	load(blob(index.Manifests[0]), &image)
	var config struct {
		Architecture string
		Config       struct {
			User            string
			Entrypoint, Cmd []string
			Labels          map[string]string
			Volumes         map[string]any
		}
	}
	load(blob(image.Config), &config)
	c := config.Config
	if _, volume := c.Volumes["/data"]; !volume || c.User != "65532:65532" || strings.Join(c.Entrypoint, " ") != "/keelson" ||
		strings.Join(c.Cmd, " ") != "serve --data-dir=/data --bind-address=0.0.0.0" ||
		c.Labels["org.opencontainers.image.revision"] != r.commit || c.Labels["org.opencontainers.image.version"] != version.Keelson {
		t.Errorf("the configuration of the image: %+v", config)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program in an image")
	}
	// The directories above the files of this test are closed to others; a root of its own is not.
	files, err := os.MkdirTemp("", "keelson-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(files) })
	if err := os.Chmod(files, 0o755); err != nil { //nolint:gosec // the user of the image reads it
		t.Fatal(err)
	}
	for _, layer := range image.Layers {
		must(t, files, nil, "tar", "-xzpf", blob(layer), "--same-owner")
	}
	server := exec.Command("/keelson")
	server.Dir, server.Env = "/", []string{}
	server.SysProcAttr = &syscall.SysProcAttr{Chroot: files, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	r.checkBuild(t, serve(t, server, "/data"))
	found, err := filepath.Glob(filepath.Join(files, "*"))
	if err != nil || len(found) != 3 { // data, etc and keelson
		t.Errorf("the server has left %q %v", found, err)
	}
}

func (r release) testFormula(t *testing.T) {
	formula, err := os.ReadFile(filepath.Join(r.dist, "keelson.rb"))
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Base(r.name("linux_ARCH.tar.gz"))
	sums, err := os.ReadFile(filepath.Join(r.dist, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	sum := ""
	for line := range strings.Lines(string(sums)) {
		if found, name, _ := strings.Cut(strings.TrimSpace(line), "  "); name == archive {
			sum = found
		}
	}
	want := fmt.Sprintf("/v#{version}/%s\"\n      sha256 %q\n", archive, sum)
	if len(sum) != 64 || !strings.Contains(string(formula), want) || !strings.Contains(string(formula), `version "`+version.Keelson+`"`) {
		t.Errorf("the formula does not have %q:\n%s", want, formula)
	}
}

// testAction runs the action with this release, whose signature it checks with the program minisign of a Go module.
func (r release) testAction(t *testing.T) {
	server := newReleaseServer(t)
	files, err := filepath.Glob(filepath.Join(r.dist, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		server.files["/download/"+tag+"/"+filepath.Base(file)] = content
	}
	text, err := os.ReadFile(r.public)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	inputs := map[string]string{"version": tag, "public-key": lines[len(lines)-1]}
	j := newJob(t, server.URL)
	j.env["RUNNER_ARCH"] = map[string]string{"amd64": "X64", "arm64": "ARM64"}[runtime.GOARCH]
	if err := os.Remove(filepath.Join(j.dir, "bin", "go")); err != nil { // the real one runs minisign
		t.Fatal(err)
	}
	env, log, err := j.run(t, inputs)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	out := must(t, j.dir, nil, filepath.Join(env["KUBEBUILDER_ASSETS"], "kube-apiserver"), "--version")
	if !strings.Contains(out, "keelson-"+version.Keelson) {
		t.Errorf("kube-apiserver --version: %s", out)
	}
	server.files["/download/"+tag+"/SHA256SUMS"] = append(server.files["/download/"+tag+"/SHA256SUMS"], "0  other\n"...)
	if err := os.RemoveAll(filepath.Join(j.temp(), "keelson-release")); err != nil {
		t.Fatal(err)
	}
	if _, log, err := j.run(t, inputs); err == nil || !strings.Contains(log, "signature of release "+version.Keelson+" is not valid") {
		t.Errorf("changed checksums: %v\n%s", err, log)
	}
}

// importer is a program of others that runs a server, and prints what /version says about the commit.
const importer = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
	"k8s.io/client-go/discovery"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	s, err := keelson.Start(context.Background(), config.InMemory())
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.RESTConfig())
	if err != nil {
		return err
	}
	v, err := client.ServerVersion()
	if err != nil {
		return err
	}
	fmt.Println(v.GitVersion)
	return s.Stop(context.Background())
}
`

// testModule installs the program from the tag, and builds a module that imports the root package at the tag, by a proxy of
// files. All other modules are those in the cache of this machine, or come from its proxy.
func (r release) testModule(t *testing.T) {
	proxy, cache := t.TempDir(), strings.TrimSpace(must(t, root, nil, "go", "env", "GOMODCACHE"))
	must(t, r.clone, nil, r.tools, "moduleproxy", r.clone, tag, proxy)
	upstream := strings.TrimSpace(must(t, root, nil, "go", "env", "GOPROXY"))
	bin := t.TempDir()
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download," + upstream, "GONOSUMDB=github.com/keelson-dev/keelson",
		// The tag of this test must not get into the cache of the machine.
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw", "GOWORK=off", "CGO_ENABLED=0", "GOBIN=" + bin,
	}
	must(t, bin, env, "go", "install", "-trimpath", "-ldflags", "-s -w", "-tags", "grpcnotrace", program+"@"+tag)
	if v := serve(t, exec.Command(filepath.Join(bin, "keelson")), t.TempDir()); v.GitCommit != tag {
		t.Errorf("/version of the installed program: %+v, want the commit %s", v, tag)
	}
	if out := must(t, bin, env, "go", "list", "-m", "-versions", "github.com/keelson-dev/keelson"); !strings.Contains(out, tag) {
		t.Errorf("the versions of the module: %s", out)
	}

	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/importer\n\ngo 1.26.0\n", "main.go": importer} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, dir, env, "go", "get", "github.com/keelson-dev/keelson@"+tag)
	must(t, dir, env, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "grpcnotrace", "-mod=mod", "-o", "importer", ".")
	if out := must(t, dir, env, filepath.Join(dir, "importer")); !strings.Contains(out, "+keelson-"+version.Keelson) {
		t.Errorf("the program prints %q", out)
	}
}
