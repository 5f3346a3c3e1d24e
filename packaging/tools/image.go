package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group of the server in the image. It has no rights and no name.
const imageUser = 65532

// runImage writes an image for Linux as a tar archive of an OCI image layout. No daemon and no base image are needed: the
// image has the program, the certificates of public authorities and the directory of the volume, and nothing else.
func runImage(_ io.Writer, args []string) error {
	version, revision, file := args[0], args[1], args[2]
	at, err := releaseTime()
	if err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "keelson",
		"org.opencontainers.image.description": "A Kubernetes API server in one binary",
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.revision":    revision,
		"org.opencontainers.image.created":     at.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/keelson-dev/keelson",
		"org.opencontainers.image.url":         "https://github.com/keelson-dev/keelson",
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range args[3:] {
		arch, program, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("%q is not ARCH=PROGRAM", arg)
		}
		image, err := newImage(arch, program, labels, at)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	annotated, ok := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !ok {
		return fmt.Errorf("the index of the image cannot have annotations")
	}
	return writeLayout(file, annotated, version, at)
}

// writeLayout writes a layout whose only entry is index, by the name version.
func writeLayout(file string, index v1.ImageIndex, version string, at time.Time) error {
	dir, err := os.MkdirTemp("", "keelson-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})
	if err := path.AppendIndex(index, name); err != nil {
		return err
	}
	return writeFile(file, func(w io.Writer) error { return writeTar(w, dir, "", at) })
}

// newImage returns the image for one architecture.
func newImage(arch, program string, labels map[string]string, at time.Time) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	base, err := newLayer(at,
		layerFile{name: "data/", mode: 0o700, owner: imageUser},
		layerFile{name: "etc/", mode: 0o755}, layerFile{name: "etc/ssl/", mode: 0o755}, layerFile{name: "etc/ssl/certs/", mode: 0o755},
		layerFile{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: publicAuthorities()},
	)
	if err != nil {
		return nil, err
	}
	server, err := newLayer(at, layerFile{name: "keelson", mode: 0o755, content: content})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: v1.Time{Time: at}, CreatedBy: "certificates of authorities and /data"}},
		mutate.Addendum{Layer: server, History: v1.History{Created: v1.Time{Time: at}, CreatedBy: "the program"}},
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: at}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
		Entrypoint:   []string{"/keelson"},
		Cmd:          []string{"serve", "--data-dir=/data", "--bind-address=0.0.0.0"},
		ExposedPorts: map[string]struct{}{"6443/tcp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		WorkingDir:   "/",
		StopSignal:   "SIGTERM",
		Labels:       labels,
	}
	return mutate.ConfigFile(image, config)
}

// layerFile is a file of a layer, or a directory if its name ends with a slash.
type layerFile struct {
	name    string
	mode    fs.FileMode
	owner   int // the user and the group
	content []byte
}

// newLayer returns a layer with files, compressed with gzip.
func newLayer(at time.Time, files ...layerFile) (v1.Layer, error) {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{
			Name: f.name, Mode: int64(f.mode), Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: at,
			Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// publicAuthorities returns the certificates of the authorities that Mozilla trusts, in PEM. They are those of a module,
// and not of the machine that builds, so that every machine builds the same image. Authorities that are only trusted under
// conditions are left out, because a file of certificates cannot express these.
func publicAuthorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return b.Bytes()
}

// readLayout unpacks a file that runImage has written to dir, and returns the index in it.
func readLayout(file, dir string) (v1.ImageIndex, error) {
	if err := unpackTar(file, dir); err != nil {
		return nil, err
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d entries, not one", file, len(manifest.Manifests))
	}
	return top.ImageIndex(manifest.Manifests[0].Digest)
}

// unpackTar unpacks the files of a tar archive, without their modes.
func unpackTar(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("%s has the path %q", file, h.Name)
		}
		to := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := writeFile(to, func(w io.Writer) error { _, err := io.Copy(w, archive); return err }); err != nil {
			return err
		}
	}
}
