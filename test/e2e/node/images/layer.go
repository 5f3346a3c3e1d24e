package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
)

// layer is one layer of an image, an uncompressed tar archive. The first file of a name stays; later ones are ignored.
// Methods after a failure do nothing; close returns the error.
type layer struct {
	buffer bytes.Buffer
	tar    *tar.Writer
	names  map[string]bool
	err    error
}

func newLayer() *layer {
	l := &layer{names: map[string]bool{}}
	l.tar = tar.NewWriter(&l.buffer)
	return l
}

// add writes one entry, and the folders above it. It ignores a name that exists.
func (l *layer) add(h *tar.Header, content []byte) {
	h.Name = strings.Trim(h.Name, "/")
	if h.Name == "" || h.Name == "." || l.names[h.Name] || l.err != nil {
		return
	}
	l.folder(path.Dir(h.Name), 0o755)
	l.names[h.Name] = true
	h.Size = int64(len(content))
	if l.err = l.tar.WriteHeader(h); l.err == nil {
		_, l.err = l.tar.Write(content)
	}
}

func (l *layer) folder(name string, mode int64) {
	l.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil)
}

func (l *layer) folders(names ...string) {
	for _, name := range names {
		l.folder(name, 0o755)
	}
}

func (l *layer) text(name, content string) {
	l.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(content))
}

func (l *layer) link(name, target string) {
	l.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, nil)
}

// file copies a file of this machine.
func (l *layer) file(name, source string, mode int64) {
	content, err := os.ReadFile(source)
	if err != nil {
		l.fail(err)
		return
	}
	l.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content)
}

func (l *layer) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// program copies a program of this machine, with the shared libraries that it is linked with.
func (l *layer) program(name, source string) {
	l.file(name, source, 0o755)
	// ldd fails for a program without shared libraries.
	out, _ := exec.Command("ldd", source).Output()
	for _, found := range library.FindAllSubmatch(out, -1) {
		l.file(string(found[1]), string(found[1]), 0o755)
	}
}

// tree copies the regular files below a folder of this machine to the same place.
func (l *layer) tree(folder string) {
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			l.file(path.Join(folder, name), path.Join(folder, name), 0o644)
		}
		return err
	})
	if err != nil {
		l.fail(err)
	}
}

// applets links every command of busybox to it.
func (l *layer) applets() {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		l.fail(fmt.Errorf("busybox --list: %w", err))
		return
	}
	for _, name := range strings.Fields(string(out)) {
		l.link("bin/"+name, "/bin/busybox")
	}
	l.link("usr/bin/env", "/bin/busybox")
}

func (l *layer) close() ([]byte, error) {
	if err := l.tar.Close(); l.err == nil {
		l.err = err
	}
	return l.buffer.Bytes(), l.err
}
