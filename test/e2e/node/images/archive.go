package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
)

// descriptor refers to a blob, as the OCI image specification says.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// config is how the containers of an image run.
type config struct {
	User         string              `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	Env          []string
	Entrypoint   []string `json:",omitempty"`
	Cmd          []string `json:",omitempty"`
	StopSignal   string   `json:",omitempty"`
}

// archive is an OCI image layout in a tar archive. Methods after a failure do nothing; close returns the error.
type archive struct {
	tar   *tar.Writer
	blobs map[string]bool
	index []descriptor
	err   error
}

func newArchive(to io.Writer) *archive {
	return &archive{tar: tar.NewWriter(to), blobs: map[string]bool{}}
}

func (a *archive) write(name string, content []byte) {
	if a.err != nil {
		return
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}
	if a.err = a.tar.WriteHeader(h); a.err == nil {
		_, a.err = a.tar.Write(content)
	}
}

// blob stores content once.
func (a *archive) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	if !a.blobs[digest] {
		a.blobs[digest] = true
		a.write("blobs/sha256/"+digest, content)
	}
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (a *archive) document(mediaType string, v any) descriptor {
	content, err := json.Marshal(v)
	if a.err == nil {
		a.err = err
	}
	return a.blob(mediaType, content)
}

const (
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	configType   = "application/vnd.oci.image.config.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// image adds an image of some layers under several names.
func (a *archive) image(names []string, c config, layers ...[]byte) {
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	var described []descriptor
	var diffs []string
	for _, l := range layers {
		d := a.blob(layerType, l)
		described = append(described, d)
		diffs = append(diffs, d.Digest)
	}
	configured := a.document(configType, map[string]any{
		"architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z", "config": c,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs}, "history": []string{},
	})
	manifest := a.document(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configured, "layers": described,
	})
	for _, name := range names {
		_, tag, _ := strings.Cut(name, ":")
		named := manifest
		named.Annotations = map[string]string{
			"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag,
		}
		a.index = append(a.index, named)
	}
}

func (a *archive) close() error {
	a.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": a.index})
	if a.err == nil {
		a.err = err
	}
	a.write("index.json", index)
	if err := a.tar.Close(); a.err == nil {
		a.err = err
	}
	return a.err
}
