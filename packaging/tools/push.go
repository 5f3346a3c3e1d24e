package main

import (
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// runPush pushes an image layout to a repository of a registry, with one tag or more. The credentials are those of docker or
// podman login.
func runPush(out io.Writer, args []string) error {
	file, repository, tags := args[0], args[1], args[2:]
	dir, err := os.MkdirTemp("", "keelson-push-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	index, err := readLayout(file, dir)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	for _, tag := range tags {
		ref, err := name.NewTag(repository + ":" + tag)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
		if _, err := fmt.Fprintf(out, "%s@%s\n", ref, digest); err != nil {
			return err
		}
	}
	return nil
}
