package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// runModuleProxy writes what a module proxy serves for a tagged version of the module in a Git repository to DIR, which
// GOPROXY=file://DIR can name. With it `go install` of a tag can be tried before the tag is public.
func runModuleProxy(_ io.Writer, args []string) error {
	repository, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	version, dir := args[1], args[2]
	goMod, err := git(repository, "show", version+":go.mod")
	if err != nil {
		return err
	}
	stamp, err := git(repository, "log", "-1", "--format=%cI", version)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(stamp))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath([]byte(goMod)), Version: version}
	if err := module.Check(m.Path, m.Version); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": at.UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string]string{"list": version + "\n", version + ".info": string(info), version + ".mod": goMod} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(to, version+".zip"), func(w io.Writer) error {
		return zip.CreateFromVCS(w, m, repository, version, "")
	})
}

// git returns what a command of Git prints.
func git(repository string, args ...string) (string, error) {
	c := exec.Command("git", append([]string{"-C", repository}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
