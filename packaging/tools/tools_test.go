package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// mustRun runs a command of this program and returns what it prints.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// write writes files by their paths below dir. Those named keelson are programs.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if filepath.Base(name) == "keelson" {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// fakeRelease returns a directory with the files of an archive.
func fakeRelease(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keelson_1.2.3_linux_amd64")
	write(t, dir, map[string]string{
		"keelson": "program", "keelson.service": "unit", "CHANGELOG.md": "changes", "man/keelson.1": "page", "man/keelson-serve.1": "page",
		"completions/keelson.bash": "bash", "completions/keelson.zsh": "zsh", "completions/keelson.fish": "fish",
	})
	return dir
}

// sameTwice checks that two runs of a command, which is given the file that it writes, write the same.
func sameTwice(t *testing.T, name string, args func(file string) []string) string {
	t.Helper()
	first, second := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), name)
	mustRun(t, args(first)...)
	mustRun(t, args(second)...)
	if !bytes.Equal(read(t, first), read(t, second)) {
		t.Errorf("two runs of %s differ", args(name)[0])
	}
	return first
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"no-such-command"}, {"sign"}, {"sign", "a", "b"}, {"image", "1", "2", "3"}} {
		if err := run(io.Discard, args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	if err := run(io.Discard, []string{"archive", t.TempDir(), filepath.Join(t.TempDir(), "a.zip")}); err == nil {
		t.Error("an archive is written without SOURCE_DATE_EPOCH")
	}
}

// TestArchive reads archives with the programs of the system: the modes do not depend on the umask.
func TestArchive(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	dir := fakeRelease(t)
	if err := os.Chmod(filepath.Join(dir, "CHANGELOG.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]string{
		"a.tar.gz": {"tar", "--utc", "-tvzf"}, "a.tar": {"tar", "--utc", "-tvf"}, "a.zip": {"unzip", "-Z", "-T"},
	} {
		file := sameTwice(t, name, func(file string) []string { return []string{"archive", dir, file} })
		if _, err := exec.LookPath(list[0]); err != nil {
			t.Logf("%s is not installed: %s was not read", list[0], name)
			continue
		}
		out, err := exec.Command(list[0], append(list[1:], file)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		prefix := "keelson_1.2.3_linux_amd64/"
		if name == "a.tar" {
			prefix = ""
		}
		for path, mode := range map[string]string{"keelson": "-rwxr-xr-x", "CHANGELOG.md": "-rw-r--r--", "man/": "drwxr-xr-x"} {
			if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
				return strings.HasPrefix(line, mode) && strings.HasSuffix(line, " "+prefix+path)
			}) {
				t.Errorf("%s has no %s%s with mode %s:\n%s", name, prefix, path, mode, out)
			}
		}
	}
	if err := os.Symlink("keelson", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := run(io.Discard, []string{"archive", dir, file}); err == nil {
		t.Error("a link is archived")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a failed run leaves a file")
	}
}

func TestSignature(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	for name, password := range map[string]string{"with a password": "secret", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(passwordVariable, password)
			dir := t.TempDir()
			secret, public, sums := filepath.Join(dir, "secret"), filepath.Join(dir, "public"), filepath.Join(dir, "SHA256SUMS")
			write(t, dir, map[string]string{"SHA256SUMS": "sums"})
			t.Setenv(secretKeyVariable, "")
			if out := mustRun(t, "sign", sums); !strings.Contains(out, "is not signed") {
				t.Errorf("without a key: %q", out)
			}
			mustRun(t, "keygen", secret, public)
			if err := run(io.Discard, []string{"keygen", secret, public}); err == nil {
				t.Error("a secret key was overwritten")
			}
			t.Setenv(secretKeyVariable, secret)
			mustRun(t, "sign", sums)
			first := read(t, sums+".minisig")
			mustRun(t, "sign", sums)
			if !bytes.Equal(first, read(t, sums+".minisig")) {
				t.Error("two signatures of one file differ")
			}
			mustRun(t, "verify", sums, public)
			lines := strings.Split(strings.TrimSpace(string(read(t, public))), "\n")
			mustRun(t, "verify", sums, lines[len(lines)-1])
			write(t, dir, map[string]string{"SHA256SUMS": "others"})
			if err := run(io.Discard, []string{"verify", sums, public}); err == nil {
				t.Error("the signature of a changed file is accepted")
			}
			write(t, dir, map[string]string{"SHA256SUMS": "sums"})
			other := filepath.Join(dir, "other")
			mustRun(t, "keygen", other+".secret", other)
			if err := run(io.Discard, []string{"verify", sums, other}); err == nil {
				t.Error("the signature of another key is accepted")
			}
			if password != "" {
				t.Setenv(passwordVariable, "wrong")
				if err := run(io.Discard, []string{"sign", sums}); err == nil {
					t.Error("a wrong password is accepted")
				}
			}
		})
	}
}

// TestDeb lets dpkg-deb read the package.
func TestDeb(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	dir := fakeRelease(t)
	file := sameTwice(t, "keelson.deb", func(file string) []string { return []string{"deb", dir, "1.2.3", "amd64", file} })
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	dpkg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("dpkg-deb", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for field, want := range map[string]string{"Package": "keelson", "Version": "1.2.3", "Architecture": "amd64"} {
		if got := strings.TrimSpace(dpkg("--field", file, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if got := dpkg("--info", file, "conffiles"); got != "/etc/default/keelson\n" {
		t.Errorf("conffiles: %q", got)
	}
	list := dpkg("--contents", file)
	for path, mode := range map[string]string{
		"/usr/bin/keelson": "-rwxr-xr-x", "/usr/share/man/man1/keelson-serve.1.gz": "-rw-r--r--", "/etc/default/keelson": "-rw-r--r--",
		"/usr/lib/systemd/system/keelson.service": "-rw-r--r--", "/usr/share/doc/keelson/copyright": "-rw-r--r--",
		"/usr/share/doc/keelson/changelog.gz": "-rw-r--r--", "/usr/share/bash-completion/completions/keelson": "-rw-r--r--",
		"/usr/share/zsh/vendor-completions/_keelson": "-rw-r--r--",
		"/usr/bin/kubectl-history -> keelson":        "lrwxrwxrwx", "/usr/bin/kubectl_complete-history -> keelson": "lrwxrwxrwx",
	} {
		if !slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
			return strings.HasPrefix(line, mode+" root/root ") && strings.HasSuffix(line, " ."+path)
		}) {
			t.Errorf("the package has no %s with mode %s:\n%s", path, mode, list)
		}
	}
	control := t.TempDir()
	dpkg("--control", file, control)
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(control, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", script, err, out)
		}
	}
	if got := strings.TrimSpace(dpkg("--field", filepath.Join(filepath.Dir(file), "keelson.deb"), "Maintainer")); !strings.Contains(got, "@") {
		t.Errorf("the maintainer has no address: %q", got)
	}
}

// TestImage pushes an image of two architectures to a registry and pulls it.
func TestImage(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1767225600")
	dir := t.TempDir()
	write(t, dir, map[string]string{"amd64/keelson": "for amd64", "arm64/keelson": "for arm64"})
	file := sameTwice(t, "image.tar", func(file string) []string {
		return []string{
			"image", "1.2.3", "0123abcd", file, "amd64=" + filepath.Join(dir, "amd64/keelson"), "arm64=" + filepath.Join(dir, "arm64/keelson"),
		}
	})
	server := httptest.NewServer(registry.New())
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/keelson"
	if out := mustRun(t, "push", file, repository, "1.2.3", "latest"); strings.Count(out, repository+":") != 2 {
		t.Errorf("push prints %q", out)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := crane.Pull(repository+":latest", crane.WithPlatform(&v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := config.Config
		_, volume := c.Volumes["/data"]
		if c.User != "65532:65532" || !volume || !slices.Equal(c.Entrypoint, []string{"/keelson"}) || c.StopSignal != "SIGTERM" ||
			config.Architecture != arch || c.Labels["org.opencontainers.image.version"] != "1.2.3" ||
			config.Created.Format("2006-01-02") != "2026-01-01" {
			t.Errorf("%s: %+v", arch, config)
		}
		checkFiles(t, image, "for "+arch)
	}
}

// checkFiles checks what an image contains.
func checkFiles(t *testing.T, image v1.Image, program string) {
	t.Helper()
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	found := map[string]*tar.Header{}
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		found[name] = h
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if name == "keelson" && string(b) != program {
			t.Errorf("the program is %q", b)
		}
		if block, _ := pem.Decode(b); name == "etc/ssl/certs/ca-certificates.crt" && (block == nil || bytes.Count(b, []byte("BEGIN")) < 50) {
			t.Errorf("ca-certificates.crt has %d bytes", len(b))
		}
	}
	if h := found["keelson"]; h == nil || h.Mode != 0o755 {
		t.Errorf("the program: %+v", h)
	}
	if h := found["data"]; h == nil || h.Uid != imageUser || h.Mode != 0o700 {
		t.Errorf("/data: %+v", h)
	}
	if len(found) != 6 {
		t.Errorf("the image has %d files and directories: %v", len(found), found)
	}
}

func TestFormula(t *testing.T) {
	dir := t.TempDir()
	if err := run(io.Discard, []string{"formula", "1.2.3", dir}); err == nil {
		t.Error("a formula without archives")
	}
	write(t, dir, map[string]string{"keelson_1.2.3_linux_amd64.tar.gz": "a"})
	one := mustRun(t, "formula", "1.2.3", dir)
	if strings.Contains(one, "on_macos") || strings.Count(one, "sha256 ") != 1 {
		t.Errorf("with one archive:\n%s", one)
	}
	write(t, dir, map[string]string{
		"keelson_1.2.3_darwin_arm64.tar.gz": "b", "keelson_1.2.3_darwin_amd64.tar.gz": "c", "keelson_1.2.3_linux_arm64.tar.gz": "d",
	})
	all := mustRun(t, "formula", "1.2.3", dir)
	// The SHA-256 sum of "a" is ca978112...; it comes after the URL of its archive.
	const want = `      url "https://github.com/keelson-dev/keelson/releases/download/v#{version}/keelson_1.2.3_linux_amd64.tar.gz"
      sha256 "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
`
	if !strings.Contains(all, want) || strings.Count(all, "sha256 ") != 4 || !strings.Contains(all, `version "1.2.3"`) {
		t.Errorf("with all archives:\n%s", all)
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		check := exec.Command(ruby, "-c")
		check.Stdin = strings.NewReader(all)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("ruby: %v %s", err, out)
		}
	}
	opened := 0 // do ... end and class, def
	for _, line := range strings.Split(all, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "class "), strings.HasPrefix(line, "def "), strings.HasSuffix(line, " do"):
			opened++
		case line == "end":
			opened--
		}
	}
	if opened != 0 {
		t.Errorf("%d blocks are not closed:\n%s", opened, all)
	}
}

// TestModuleProxy installs a tagged version of a module from the files of a proxy.
func TestModuleProxy(t *testing.T) {
	repository, proxy := t.TempDir(), t.TempDir()
	write(t, repository, map[string]string{
		"go.mod": "module example.com/Hello\n\ngo 1.26.0\n", "main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
		"nested/go.mod": "module example.com/Hello/nested\n", "nested/nested.go": "package nested\n",
	})
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"}, {"tag", "v1.2.3"},
	} {
		if _, err := git(repository, args...); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "moduleproxy", repository, "v1.2.3", proxy)
	bin := t.TempDir()
	install := exec.Command("go", "install", "example.com/Hello@v1.2.3")
	install.Dir = bin
	install.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GONOSUMDB=example.com", "GOBIN="+bin, "GOMODCACHE="+t.TempDir(),
		"GOFLAGS=-modcacherw", "GOWORK=off")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(filepath.Join(bin, "Hello")).CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("the program prints %q: %v", out, err)
	}
	if err := run(io.Discard, []string{"moduleproxy", repository, "v9.9.9", proxy}); err == nil {
		t.Error("a version without a tag is accepted")
	}
}
