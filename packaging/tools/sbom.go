package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

// runSBOM writes the bill of materials of a Go program to out, in the format of CycloneDX 1.6: the modules in it with
// their versions and checksums.
func runSBOM(out io.Writer, args []string) error { return writeBill(out, args[0]) }

// bill is a document of CycloneDX.
type bill struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// writeBill writes the bill of the program in a file.
func writeBill(out io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(billOf(info, hex.EncodeToString(sum[:])))
}

// billOf returns the bill of a program with the SHA-256 sum sum.
func billOf(info *debug.BuildInfo, sum string) bill {
	program := moduleComponent(&info.Main)
	program.Type, program.Hashes = "application", []hash{{"SHA-256", sum}}
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	b := bill{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{program},
		Components: []component{{
			Type: "library", Ref: "pkg:golang/stdlib@" + info.GoVersion, Name: "stdlib", Version: info.GoVersion,
			PURL: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go"),
		}},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, moduleComponent(m))
	}
	return b
}

// moduleComponent returns the component of a module. Its checksum is that of go.sum, which is not one of a file.
func moduleComponent(m *debug.Module) component {
	purl := "pkg:golang/" + m.Path
	if m.Version != "" {
		purl += "@" + m.Version
	}
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}
