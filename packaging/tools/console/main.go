// Command console builds the page of internal/console from its sources: `go generate ./internal/console`. It needs npm, which
// gets the packages of the lock file; what it writes is committed, so that building Keelson needs neither.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	app := flag.String("app", "", "folder of the sources")
	dist := flag.String("dist", "", "folder of the built files, whose content is replaced")
	install := flag.Bool("install", true, "get the packages of the lock file with npm")
	flag.Parse()
	if err := run(*app, *dist, *install); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(app, dist string, install bool) error {
	if app == "" || dist == "" {
		return errors.New("--app and --dist are needed")
	}
	commands := [][]string{{"npx", "--no-install", "tsc", "--noEmit"}}
	if install {
		commands = append([][]string{{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}}, commands...)
	}
	for _, args := range commands {
		c := exec.Command(args[0], args[1:]...)
		c.Dir, c.Stdout, c.Stderr = app, os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	files, packages, err := bundle(app)
	if err != nil {
		return err
	}
	if files["licences.txt"], err = licences(app, packages); err != nil {
		return err
	}
	return write(dist, app, files)
}

// bundle returns the files of the page, and the folders of the npm packages that are in them.
func bundle(app string) (files map[string][]byte, packages []string, err error) {
	absolute, err := filepath.Abs(app)
	if err != nil {
		return nil, nil, err
	}
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: absolute, EntryPoints: []string{"src/main.tsx", "src/style.css"}, Outdir: "dist",
		Bundle: true, Splitting: true, Format: api.FormatESModule, Target: api.ES2022, Metafile: true,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		EntryNames: "[name]-[hash]", ChunkNames: "part-[hash]", JSX: api.JSXAutomatic, JSXImportSource: "preact",
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelInfo, Define: map[string]string{"process.env.NODE_ENV": `"production"`},
	})
	if len(result.Errors) > 0 {
		return nil, nil, fmt.Errorf("%d errors", len(result.Errors))
	}
	files = make(map[string][]byte)
	replace := []string{}
	for _, f := range result.OutputFiles {
		name := filepath.Base(f.Path)
		files[name] = f.Contents
		switch {
		case strings.HasPrefix(name, "main-"):
			replace = append(replace, "{{script}}", name)
		case strings.HasPrefix(name, "style-"):
			replace = append(replace, "{{style}}", name)
		}
	}
	icon, err := os.ReadFile(filepath.Join(app, "src", "icon.svg"))
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(icon)
	name := fmt.Sprintf("icon-%x.svg", sum[:4])
	files[name] = icon
	page, err := os.ReadFile(filepath.Join(app, "src", "index.html"))
	if err != nil {
		return nil, nil, err
	}
	files["index.html"] = []byte(strings.NewReplacer(append(replace, "{{icon}}", name)...).Replace(string(page)))
	var meta struct {
		Inputs map[string]any `json:"inputs"`
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return nil, nil, err
	}
	for input := range meta.Inputs {
		if _, inside, ok := strings.Cut(input, "node_modules/"); ok {
			parts := strings.Split(inside, "/")
			n := 1
			if strings.HasPrefix(inside, "@") {
				n = 2
			}
			packages = append(packages, strings.Join(parts[:n], "/"))
		}
	}
	slices.Sort(packages)
	return files, slices.Compact(packages), nil
}

// licences returns the texts of the licences of the packages.
func licences(app string, packages []string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("The console contains these packages of npm:\n")
	for _, name := range packages {
		dir := filepath.Join(app, "node_modules", filepath.FromSlash(name))
		text, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err != nil {
			return nil, err
		}
		var about struct{ Version, License string }
		if err := json.Unmarshal(text, &about); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]*"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("%s has no text of its licence", name)
		}
		licence, err := os.ReadFile(found[0])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n%s %s (%s)\n\n%s\n", name, about.Version, about.License, bytes.TrimSpace(licence))
	}
	return b.Bytes(), nil
}

// write replaces the built files. They are compressed, because the program has them in this form only.
func write(dist, app string, files map[string][]byte) error {
	old, err := filepath.Glob(filepath.Join(dist, "*"))
	if err != nil {
		return err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(text); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dist, name+".gz"), b.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%-28s %8d bytes, %7d compressed\n", name, len(text), b.Len())
	}
	sum, err := sourcesSum(app)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, "sources.sum"), []byte(sum+"\n"), 0o644)
}

// sourcesSum returns the SHA-256 sum of a text with a line for each source file, in the order of their paths: the sum of the file, a blank,
// and its path. TestBuiltFromSources of internal/console, in another module, computes it too, and compares.
func sourcesSum(app string) (string, error) {
	var lines []string
	err := filepath.WalkDir(app, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(app, path)
		lines = append(lines, fmt.Sprintf("%x %s", sha256.Sum256(text), filepath.ToSlash(name)))
		return err
	})
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[65:], b[65:]) })
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, "\n")))), err
}
