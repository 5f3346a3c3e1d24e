package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// actionDir is the folder of the action for GitHub.
const actionDir = ".github/actions/envtest"

// job is a place where the action runs: a runner of GitHub with its directories.
type job struct {
	dir      string            // of everything
	releases string            // the URL of the releases
	env      map[string]string // RUNNER_OS, RUNNER_ARCH and others
}

// newJob returns a runner with Linux on amd64. Its go command installs a program of this test, and writes its arguments to
// the file installed.
func newJob(t *testing.T, releases string) job {
	t.Helper()
	dir := t.TempDir()
	j := job{dir: dir, releases: releases, env: map[string]string{"RUNNER_OS": "Linux", "RUNNER_ARCH": "X64"}}
	for name, script := range map[string]string{
		"bin/go": `case $1 in
env) [ "$2" = GOBIN ] || echo ` + dir + `/gopath ;;
install) echo "$@" >` + dir + `/installed; mkdir -p ` + dir + `/gopath/bin; cp ` + dir + `/keelson ` + dir + `/gopath/bin/ ;;
*) exit 1 ;;
esac`,
		"keelson": fakeProgram("built"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(j.temp(), 0o755); err != nil {
		t.Fatal(err)
	}
	return j
}

// fakeProgram returns a script that prints the directory in which it is told to install, and what it is.
func fakeProgram(what string) string {
	return `[ "$1 $2 $4 $5" = "envtest install --print path" ] && echo "$3/` + what + `"`
}

// temp returns the temporary directory of the runner; the path has a space.
func (j job) temp() string { return filepath.Join(j.dir, "work files") }

// expression matches what GitHub replaces in an action.
var expression = regexp.MustCompile(`\$\{\{ (inputs|steps)\.([a-z-]+)(?:\.outputs\.([a-z-]+))? \}\}`)

// run runs the steps of the action with its inputs, without those that use other actions. It returns what the following steps
// of a job see in their environment.
func (j job) run(t *testing.T, inputs map[string]string) (env map[string]string, log string, err error) {
	t.Helper()
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Using string
			Steps []struct {
				ID, Shell, Run, Uses string
				Env                  map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, actionDir+"/action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	if action.Runs.Using != "composite" {
		t.Fatalf("the action is no list of steps: %+v", action.Runs)
	}
	outputs := map[string]map[string]string{}
	replace := func(text string) string {
		return expression.ReplaceAllStringFunc(text, func(found string) string {
			m := expression.FindStringSubmatch(found)
			if m[1] == "steps" {
				return outputs[m[2]][m[3]]
			}
			input, ok := action.Inputs[m[2]]
			if !ok {
				t.Errorf("the action uses the input %s, which it does not have", m[2])
			}
			if value, ok := inputs[m[2]]; ok {
				return value
			}
			return input.Default
		})
	}
	script, err := filepath.Abs(filepath.Join(root, actionDir))
	if err != nil {
		t.Fatal(err)
	}
	envFile := filepath.Join(t.TempDir(), "env")
	for _, step := range action.Runs.Steps {
		if step.Uses != "" {
			continue
		}
		outputFile := filepath.Join(t.TempDir(), "output")
		c := exec.Command(step.Shell, "-e", "-c", step.Run)
		c.Env = append(os.Environ(), "PATH="+filepath.Join(j.dir, "bin")+":"+os.Getenv("PATH"), "KEELSON_RELEASES="+j.releases,
			"RUNNER_TEMP="+j.temp(), "GITHUB_ENV="+envFile, "GITHUB_OUTPUT="+outputFile, "GITHUB_ACTION_PATH="+script)
		for name, value := range j.env {
			c.Env = append(c.Env, name+"="+value)
		}
		for name, value := range step.Env {
			c.Env = append(c.Env, name+"="+replace(value))
		}
		out, err := c.CombinedOutput()
		log += string(out)
		if err != nil {
			return nil, log, err
		}
		outputs[step.ID] = variables(t, outputFile)
	}
	return variables(t, envFile), log, nil
}

// variables reads a file of lines NAME=VALUE.
func variables(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = value
	}
	return out
}

// installed returns the arguments of go install, and "" if it did not run.
func (j job) installed() string {
	content, _ := os.ReadFile(filepath.Join(j.dir, "installed"))
	return strings.TrimSpace(string(content))
}

// releaseServer serves the releases of GitHub from memory, and records what was downloaded.
type releaseServer struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte // by their paths, such as /download/v1.2.3/SHA256SUMS
	newest   string            // the path that /latest redirects to
	status   int               // of all responses, if it is not 0
	requests []string
}

func newReleaseServer(t *testing.T) *releaseServer {
	t.Helper()
	s := &releaseServer{files: map[string][]byte{}, newest: "/releases"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, r.URL.Path)
		content, found := s.files[r.URL.Path]
		switch {
		case s.status != 0:
			w.WriteHeader(s.status)
		case r.URL.Path == "/latest":
			http.Redirect(w, r, s.newest, http.StatusFound)
		case found:
			_, _ = w.Write(content)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// taken returns the names of the files that were downloaded since the last call.
func (s *releaseServer) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, request := range s.requests {
		if strings.HasPrefix(request, "/download/") {
			out = append(out, filepath.Base(request))
		}
	}
	s.requests = nil
	return out
}

// fakeArchive returns an archive as release.sh makes it, with a script in the place of the program.
func fakeArchive(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	archive := tar.NewWriter(z)
	for name, content := range map[string]string{
		"keelson_1.2.3_linux_amd64/keelson":         "#!/bin/bash\n" + fakeProgram("released") + "\n",
		"keelson_1.2.3_linux_amd64/keelson.service": "unit",
	} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(archive, content); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []io.Closer{archive, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestAction runs the action for GitHub with releases of this test.
func TestAction(t *testing.T) {
	const name = "keelson_1.2.3_linux_amd64.tar.gz"
	server := newReleaseServer(t)
	archive := fakeArchive(t)
	sum := sha256.Sum256(archive)
	right := map[string][]byte{
		"/download/v1.2.3/SHA256SUMS": fmt.Appendf(nil, "%s  other.tar.gz\n%s  %s\n", strings.Repeat("0", 64), hex.EncodeToString(sum[:]), name),
		"/download/v1.2.3/" + name:    archive,
	}
	// serve has the server serve files, with changes of them; an empty one is not there.
	serve := func(status int, newest string, changes map[string]string) {
		server.mu.Lock()
		defer server.mu.Unlock()
		server.files, server.status, server.newest, server.requests = maps.Clone(right), status, newest, nil
		for path, content := range changes {
			if server.files[path] = []byte(content); content == "" {
				delete(server.files, path)
			}
		}
	}
	const tag, none = "/releases/tag/v1.2.3", "/releases"
	both := []string{"SHA256SUMS", name}

	t.Run("release", func(t *testing.T) {
		j := newJob(t, server.URL)
		for i, version := range []string{"v1.2.3", "1.2.3", "latest"} {
			serve(0, tag, nil)
			env, log, err := j.run(t, map[string]string{"version": version})
			if err != nil {
				t.Fatalf("%s: %v\n%s", version, err, log)
			}
			if got, want := env["KUBEBUILDER_ASSETS"], j.temp()+"/keelson-envtest/released"; got != want {
				t.Errorf("%s: KUBEBUILDER_ASSETS is %q, want %q\n%s", version, got, want, log)
			}
			if got := server.taken(); i == 0 && !slices.Equal(got, both) || i > 0 && len(got) > 0 {
				t.Errorf("%s, run %d: downloaded %q", version, i, got)
			}
		}
		if got := j.installed(); got != "" {
			t.Errorf("go %s has run", got)
		}
		// The files of the cache are checked like those that were downloaded.
		cached := filepath.Join(j.temp(), "keelson-release", name)
		if err := os.WriteFile(cached, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, log, err := j.run(t, map[string]string{"version": "v1.2.3"}); err == nil || !strings.Contains(log, "has the checksum") {
			t.Errorf("a changed archive in the cache: %v\n%s", err, log)
		}
		if _, err := os.Stat(cached); err == nil {
			t.Error("the changed archive stays in the cache")
		}
	})

	for title, test := range map[string]struct {
		version, platform string // of RUNNER_OS and RUNNER_ARCH
		inputs            map[string]string
		newest            string
		changes           map[string]string
		status            int
		installed         string // the version that is built
		fails             string // what the log says, if the action fails
	}{
		"branch":                    {version: "main", installed: "main"},
		"commit":                    {version: "0123456789ab", installed: "0123456789ab"},
		"no release":                {version: "latest", newest: none, installed: "latest"},
		"tag without a release":     {version: "v9.9.9", installed: "v9.9.9"},
		"number without a release":  {version: "9.9.9", installed: "v9.9.9"},
		"release without archive":   {version: "v1.2.3", changes: map[string]string{"/download/v1.2.3/" + name: ""}, installed: "v1.2.3"},
		"platform without archives": {version: "v1.2.3", platform: "Linux/ARM", installed: "v1.2.3"},
		"platform of no release":    {version: "v1.2.3", platform: "macOS/ARM64", installed: "v1.2.3"},
		"wrong checksum": {
			version: "v1.2.3", changes: map[string]string{"/download/v1.2.3/" + name: "other"}, fails: "but SHA256SUMS says",
		},
		"no checksum": {
			version: "v1.2.3", changes: map[string]string{"/download/v1.2.3/SHA256SUMS": "0  other\n"}, fails: "nothing about it",
		},
		"unsigned":  {version: "v1.2.3", inputs: map[string]string{"public-key": "RWQ"}, fails: "is not signed"},
		"no access": {version: "v1.2.3", status: http.StatusForbidden, fails: "status 403"},
	} {
		t.Run(title, func(t *testing.T) {
			newest := test.newest
			if newest == "" {
				newest = tag
			}
			serve(test.status, newest, test.changes)
			j := newJob(t, server.URL)
			if system, arch, found := strings.Cut(test.platform, "/"); found {
				j.env = map[string]string{"RUNNER_OS": system, "RUNNER_ARCH": arch}
			}
			inputs := map[string]string{"version": test.version}
			maps.Copy(inputs, test.inputs)
			env, log, err := j.run(t, inputs)
			if test.fails != "" {
				if err == nil || !strings.Contains(log, test.fails) {
					t.Errorf("%v, want a failure that says %q:\n%s", err, test.fails, log)
				}
				if got := j.installed(); got != "" {
					t.Errorf("go %s has run", got)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			want := "install -trimpath -ldflags -s -w -tags grpcnotrace github.com/keelson-dev/keelson/cmd/keelson@" + test.installed
			if got := j.installed(); got != want {
				t.Errorf("go %s has run, want %s", got, want)
			}
			if got, want := env["KUBEBUILDER_ASSETS"], j.temp()+"/keelson-envtest/built"; got != want {
				t.Errorf("KUBEBUILDER_ASSETS is %q, want %q", got, want)
			}
		})
	}
}
