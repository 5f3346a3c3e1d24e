package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/flags.md")

func TestGroupsOfKubeAPIServer(t *testing.T) {
	of := map[string]string{}
	_, flags := parseFlagTexts()
	for _, flag := range flags {
		of[flag.name] = flag.group
	}
	for _, f := range referenceFlags(t) {
		if of[f.name] != f.group {
			t.Errorf("--%s is in the group %q, want %q", f.name, of[f.name], f.group)
		}
	}
}

func TestHelpIsGrouped(t *testing.T) {
	for _, args := range [][]string{{"--help-all"}, {"serve", "--help-all"}, {"kube-apiserver", "--help"}} {
		out, _, code := keelson(args...)
		at := 0
		for _, title := range []string{"Generic flags:", "Etcd flags:", "Misc flags:", "Global flags:", "Keelson flags:"} {
			i := strings.Index(out, "\n"+title+"\n")
			if i < at {
				t.Errorf("%q: %s is not in its place", args, title)
			}
			at = i
		}
		// envtest searches the help for flags of older versions, to decide which flags to pass.
		if code != 0 || strings.Contains(out, "--insecure-port") || strings.Count(out, "\n      --etcd-servers ") != 1 {
			t.Errorf("%q: exit code %d, %d lines", args, code, strings.Count(out, "\n"))
		}
	}
	if out, _, _ := keelson("check", "--help"); !strings.Contains(out, "Flags:\n      --data-dir") {
		t.Error(out)
	}
}

// TestHelpIsShort checks that the help of a command fits a page, and its lines a terminal.
func TestHelpIsShort(t *testing.T) {
	const most = 84 // lines; the help of serve is the longest
	var commands [][]string
	var add func(c *cobra.Command, path []string)
	add = func(c *cobra.Command, path []string) {
		commands = append(commands, path)
		for _, sub := range c.Commands() {
			add(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	add(newCommand(io.Discard, io.Discard), nil)
	for _, path := range append(commands, []string{"serve", "--help-all"}) {
		if slices.Contains(path, kubeAPIServerName) {
			continue // it has the help of kube-apiserver
		}
		out, errOut, code := keelson(append(path, "--help")...)
		all := slices.Contains(path, "--help-all")
		if all {
			out, errOut, code = keelson(path...)
		}
		if n := strings.Count(out, "\n"); code != 0 || errOut != "" || n > most && !all {
			t.Errorf("%q: exit %d, %d lines, %s", path, code, n, errOut)
		}
		for line := range strings.Lines(out) {
			longest := 0
			for word := range strings.FieldsSeq(line) {
				longest = max(longest, len(word))
			}
			if line = strings.TrimRight(line, "\n"); len(line) > standardWidth && longest < standardWidth/2 {
				t.Errorf("%q: this line has %d characters: %s", path, len(line), line)
			}
		}
	}
	serve := newServe(io.Discard, io.Discard, serveDefaults())
	serve.InitDefaultHelpFlag()
	for _, group := range commonFlags() {
		for _, name := range group.names {
			if serve.Flags().Lookup(name) == nil {
				t.Errorf("there is no flag --%s", name)
			}
		}
	}
}

func TestUnknownCommandsNameTheNearest(t *testing.T) {
	for line, want := range map[string]string{
		"sevre":              `unknown command "sevre"; did you mean "serve"?`,
		"--v=2 snapshots":    `unknown command "snapshots"; did you mean "snapshot"?`,
		"zzz":                "unknown command \"zzz\"; `keelson --help` lists the commands",
		"snapshot sav":       `unknown command "sav" of keelson snapshot; did you mean "save"?`,
		"envtest instal":     `unknown command "instal" of keelson envtest; did you mean "install"?`,
		"serve extra":        `keelson serve takes no arguments, but there is "extra"`,
		"version -o x":       `--output must be json, not "x"`,
		"check --data-dirs=": `unknown flag: --data-dirs; did you mean --data-dir?`,
	} {
		if _, errOut, code := keelson(strings.Fields(line)...); code != 1 || errOut != "keelson: "+want+"\n" {
			t.Errorf("%s: %d %q", line, code, errOut)
		}
	}
}

func TestUnknownFlagsNameTheNearest(t *testing.T) {
	for arg, want := range map[string]string{
		"--etcd-server=x":    "unknown flag: --etcd-server; did you mean --etcd-servers?",
		"--tls-cert=x":       "unknown flag: --tls-cert; did you mean --tls-cert-file?",
		"--secure-prot=1":    "unknown flag: --secure-prot; did you mean --secure-port?",
		"--no-such-flag-yet": "unknown flag: --no-such-flag-yet",
		// The last word of a flag of the short help.
		"--port=1": "unknown flag: --port; did you mean --secure-port?",
		"--config": "unknown flag: --config",
		// One dash instead of two: the library sees flags of one letter.
		"-version":    "unknown flag: -version; did you mean --version?",
		"-data-dir=x": "unknown flag: -data-dir; did you mean --data-dir?",
		"-help-all":   "unknown flag: -help-all; did you mean --help-all?",
		"-v=x":        `--v: "x" is not a whole number`,
		"-visible":    `--v: "isible" is not a whole number`,
		"-x":          "unknown shorthand flag: 'x' in -x",
	} {
		_, errOut, code := keelson("serve", arg)
		if code != 1 || errOut != "keelson: "+want+"\n" {
			t.Errorf("%s: %d %q", arg, code, errOut)
		}
	}
}

// TestTableOfFlags compares docs/flags.md with the flags.
func TestTableOfFlags(t *testing.T) {
	const path = "../../docs/flags.md"
	want := tableOfFlags(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/flags.md is not up to date (%v): go test ./cmd/keelson -run TestTableOfFlags -update", err)
	}
}

func tableOfFlags(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	serve, as := newServe(io.Discard, io.Discard, serveDefaults()), newKubeAPIServer(io.Discard, io.Discard)
	serve.InitDefaultHelpFlag()
	state := func(f *pflag.Flag) string {
		switch {
		case f == nil:
			return "not built yet: refused"
		case strings.HasPrefix(f.Usage, "has no effect: "), strings.HasPrefix(f.Usage, "cannot be true"),
			strings.HasPrefix(f.Usage, "only "):
			return f.Usage
		}
		return "built"
	}
	fmt.Fprint(&out, "# Flags\n\nThe flags of kube-apiserver 1.37 and their state in Keelson, and the flags that only Keelson has. A test writes this "+
		"page:\n\n    go test ./cmd/keelson -run TestTableOfFlags -update\n\nThe defaults of `keelson kube-apiserver` are kube-apiserver's. "+
		"The last column has the default of `keelson serve` where it is another one.\n")
	group, built, known := "", 0, map[string]bool{}
	list := referenceFlags(t)
	for _, r := range list {
		known[r.name] = true
		if r.group != group {
			group = r.group
			fmt.Fprintf(&out, "\n## %s\n\n| flag | state | `keelson serve` |\n| --- | --- | --- |\n", group)
		}
		f, other := serve.Flags().Lookup(r.name), ""
		if f != nil {
			built++
			if k := as.Flags().Lookup(r.name); k != nil && k.DefValue != f.DefValue {
				other = f.DefValue
			}
		}
		fmt.Fprintf(&out, "| --%s | %s | %s |\n", r.name, state(f), other)
	}
	fmt.Fprintf(&out, "\n%d of %d flags are accepted.\n\n## Keelson\n\n| flag | what it does |\n| --- | --- |\n", built, len(list))
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if !known[f.Name] {
			fmt.Fprintf(&out, "| --%s | %s |\n", f.Name, strings.ReplaceAll(f.Usage, "|", "\\|"))
		}
	})
	return out.Bytes()
}

func TestVerbosityOfFiles(t *testing.T) {
	var out bytes.Buffer
	log, _, err := logOptions{format: "text", files: "flaggroups_*=3,other=5"}.logger(&out)
	if err != nil {
		t.Fatal(err)
	}
	log.Log(t.Context(), slog.Level(-3), "three")
	log.With("a", "b").Log(t.Context(), slog.Level(-4), "four")
	if got := out.String(); !strings.Contains(got, "three") || strings.Contains(got, "four") {
		t.Error(got)
	}
	out.Reset()
	log, setVerbosity, err := logOptions{format: "text", files: "other=5"}.logger(&out)
	if err != nil {
		t.Fatal(err)
	}
	log.Log(t.Context(), slog.Level(-2), "two")
	if err := setVerbosity(2); err != nil {
		t.Fatal(err)
	}
	log.Log(t.Context(), slog.Level(-2), "later")
	if got := out.String(); strings.Contains(got, "two") || !strings.Contains(got, "later") {
		t.Error(got)
	}
	for _, o := range []logOptions{{format: "json", files: "a=1"}, {format: "text", files: "a"}, {format: "text", files: "[=1"}} {
		if _, _, err := o.logger(io.Discard); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}
