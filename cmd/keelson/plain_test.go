package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestPlainMessage(t *testing.T) {
	for message, want := range map[string]string{
		`invalid argument "x" for "--secure-port" flag: strconv.ParseInt: parsing "x": invalid syntax`:                             `--secure-port: "x" is not a whole number`,
		`invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax`:                                   `--v: "x" is not a whole number`,
		`invalid argument "5" for "--request-timeout" flag: time: missing unit in duration "5"`:                                    `--request-timeout: "5" has no unit, such as 30s, 5m or 1h30m`,
		`bad.yaml: error converting YAML to JSON: yaml: line 1: did not find expected node content`:                                `bad.yaml: no valid YAML in line 1: did not find expected node content`,
		`json: cannot unmarshal number into Go struct field Configuration.TypeMeta.kind of type string`:                            `the field kind has a value of the wrong type (number)`,
		`json: cannot unmarshal number into Go struct field .kind of type string: from file bad.yaml`:                              `the field kind has a value of the wrong type (number): from file bad.yaml`,
		`json: cannot unmarshal string into Go value of type struct { Kind string "json:\"kind,omitempty\"" }: from file bad.yaml`: `it does not consist of fields ("name: value"): from file bad.yaml`,
		`Get "https://127.0.0.1:1/x": dial tcp 127.0.0.1:1: connect: connection refused`:                                           `nothing listens at 127.0.0.1:1 (connection refused); start the server, or correct the address`,
		`dial tcp: lookup nohost.invalid on 10.0.0.1:53: no such host`:                                                             `there is no host with the name nohost.invalid`,
		`tls: failed to verify certificate: x509: certificate signed by unknown authority`:                                         `the certificate of the server is not accepted: certificate signed by unknown authority`,
		`cannot read nofile: no such file or directory`:                                                                            `cannot read nofile: no such file or directory`,
	} {
		if got := plainMessage(message); got != want {
			t.Errorf("%s\n\tis %s\n\twant %s", message, got, want)
		}
	}
}

// TestErrorsAreWithoutGo makes mistakes with values and files, and checks that no error has phrases of Go.
func TestErrorsAreWithoutGo(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := []string{
		file("syntax", "a: ["), file("type", "kind: 3\napiVersion: x\n"), file("text", "just text"), filepath.Join(dir, "missing"),
	}
	unreachable := file("unreachable", "current-context: a\nclusters: [{name: a, cluster: {server: \"https://127.0.0.1:1\"}}]\n"+
		"contexts: [{name: a, context: {cluster: a}}]\n")
	serve := func(args ...string) []string {
		return append([]string{"serve", "--storage=memory", "--data-dir=", "--secure-port=0"}, args...)
	}
	cases := [][]string{
		serve("--secure-port=x"), serve("--secure-port=99999999999999999999"), serve("--request-timeout=5"),
		serve("--request-timeout=x"), serve("--profiling=maybe"), serve("--goaway-chance=x"), serve("--min-request-timeout=5s"),
		serve("--cache-memory=x"), serve("--enable-logs-handler=x"), serve("--etcd-servers=http://127.0.0.1:1", "--etcd-cafile=missing"),
		{"snapshot", "save", "--kubeconfig", unreachable, filepath.Join(dir, "out")},
		{"snapshot", "restore", "--data-dir", dir, "--min-revision=x", files[0]},
	}
	for _, path := range files {
		for _, flag := range []string{
			"--encryption-provider-config=", "--egress-selector-config-file=", "--authentication-config=", "--authorization-config=",
			"--admission-control-config-file=", "--tracing-config-file=", "--authentication-token-webhook-config-file=",
			"--token-auth-file=", "--client-ca-file=", "--service-account-key-file=", "--write-kubeconfig=",
		} {
			if filepath.Base(path) == "missing" && flag == "--write-kubeconfig=" {
				continue // the command creates it
			}
			if filepath.Base(path) != "missing" && flag == "--token-auth-file=" {
				continue // the argument may be a user's name
			}
			cases = append(cases, serve(flag+path))
		}
		cases = append(cases,
			serve("--audit-log-path=-", "--audit-policy-file="+path),
			serve("--authorization-mode=Webhook", "--authorization-webhook-config-file="+path),
			[]string{"snapshot", "save", "--kubeconfig", path, filepath.Join(dir, "out")},
			[]string{"snapshot", "status", path},
		)
	}
	phrases := regexp.MustCompile(`strconv\.|json: |yaml: |unmarshal|Go (value|struct)|time: |dial tcp|x509: |tls: |\n.*\n`)
	for _, args := range cases {
		out, errOut, code := keelson(args...)
		if code != 1 || !strings.HasPrefix(lastLine(errOut), "keelson: ") || phrases.MatchString(lastLine(errOut)) {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errOut)
		}
	}
}

// lastLine returns the last line of text.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[len(lines)-1]
}
