package main

import (
	"compress/gzip"
	"embed"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debianFiles are the files that only the Debian package has.
//
//go:embed debian
var debianFiles embed.FS

// runDeb writes the Debian package of a release. DIR has the files of the archive for Linux: the program, its manual
// pages, completions, unit and changes. ARCH is an architecture of Debian, which for amd64 and arm64 is that of Go.
func runDeb(_ io.Writer, args []string) error {
	dir, version, arch, file := args[0], args[1], args[2], args[3]
	at, err := releaseTime()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "keelson-deb-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.CopyFS(work, debianFiles); err != nil {
		return err
	}
	contents, err := debContents(dir, work, at)
	if err != nil {
		return err
	}
	script := func(name string) string { return filepath.Join(work, "debian", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "keelson", Arch: arch, Platform: "linux", Version: version, Section: "net", Priority: "optional",
		Maintainer: "Keelson maintainers <keelson-dev@users.noreply.github.com>", Homepage: "https://github.com/keelson-dev/keelson",
		License: "Apache-2.0", MTime: at, DisableGlobbing: true,
		Description: "Kubernetes API server in one binary\n" +
			"Keelson serves the Kubernetes API from an embedded store or from etcd. It is for tests of controllers, for\n" +
			"platforms that want a Kubernetes-style API without a cluster, and for small clusters.",
		Overridables: nfpm.Overridables{
			Umask: 0o022, Contents: contents, Recommends: []string{"ca-certificates"}, Suggests: []string{"kubernetes-client"},
			Scripts: nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
		},
	})
	return writeFile(file, func(w io.Writer) error { return deb.Default.Package(info, w) })
}

// debContents returns the files of the package. Those that have to be compressed are written to work.
func debContents(dir, work string, at time.Time) (files.Contents, error) {
	var out files.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		out = append(out, &files.Content{
			Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: at},
		})
	}
	add(filepath.Join(dir, "keelson"), "/usr/bin/keelson", files.TypeFile, 0o755)
	for _, plugin := range []string{"kubectl-history", "kubectl_complete-history"} { // the program under the names that kubectl looks for
		add("keelson", "/usr/bin/"+plugin, files.TypeSymlink, 0o777)
	}
	for source, destination := range map[string]string{
		"keelson.service":          "/usr/lib/systemd/system/keelson.service",
		"completions/keelson.bash": "/usr/share/bash-completion/completions/keelson",
		"completions/keelson.zsh":  "/usr/share/zsh/vendor-completions/_keelson",
		"completions/keelson.fish": "/usr/share/fish/vendor_completions.d/keelson.fish",
	} {
		add(filepath.Join(dir, source), destination, files.TypeFile, 0o644)
	}
	add(filepath.Join(work, "debian", "default"), "/etc/default/keelson", files.TypeConfigNoReplace, 0o644)
	add(filepath.Join(work, "debian", "copyright"), "/usr/share/doc/keelson/copyright", files.TypeFile, 0o644)

	// Debian's policy wants manual pages and changes compressed.
	compressed := map[string]string{filepath.Join(dir, "CHANGELOG.md"): "/usr/share/doc/keelson/changelog.gz"}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		compressed[page] = "/usr/share/man/man1/" + filepath.Base(page) + ".gz"
	}
	for source, destination := range compressed {
		z := filepath.Join(work, filepath.Base(destination))
		if err := compressFile(source, z); err != nil {
			return nil, err
		}
		add(z, destination, files.TypeFile, 0o644)
	}
	return out, nil
}

// compressFile writes a file with gzip, without its name and time.
func compressFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(content); err != nil {
			return err
		}
		return z.Close()
	})
}
