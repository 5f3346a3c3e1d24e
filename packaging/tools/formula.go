package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed keelson.rb.tmpl
var formulaText string

// formulaPlatform is a platform of Homebrew.
type formulaPlatform struct {
	OS, Arch string // in the words of Go
	Block    string // on_arm or on_intel
	Name     string // of the archive
	SHA256   string
}

// runFormula writes a Homebrew formula to out, which installs the archives of VERSION in DIR. Platforms without an archive
// there are left out.
func runFormula(out io.Writer, args []string) error {
	version, dir := args[0], args[1]
	text, err := template.New("formula").Parse(formulaText)
	if err != nil {
		return err
	}
	data := struct {
		Version       string
		Darwin, Linux []formulaPlatform
	}{Version: version}
	for _, p := range []formulaPlatform{
		{OS: "darwin", Arch: "arm64", Block: "on_arm"}, {OS: "darwin", Arch: "amd64", Block: "on_intel"},
		{OS: "linux", Arch: "arm64", Block: "on_arm"}, {OS: "linux", Arch: "amd64", Block: "on_intel"},
	} {
		p.Name = fmt.Sprintf("keelson_%s_%s_%s.tar.gz", version, p.OS, p.Arch)
		content, err := os.ReadFile(filepath.Join(dir, p.Name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		p.SHA256 = hex.EncodeToString(sum[:])
		if p.OS == "darwin" {
			data.Darwin = append(data.Darwin, p)
		} else {
			data.Linux = append(data.Linux, p)
		}
	}
	if len(data.Darwin)+len(data.Linux) == 0 {
		return fmt.Errorf("%s has no archive of version %s for macOS or Linux", dir, version)
	}
	return text.Execute(out, data)
}
