package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// probeLimit bounds how long the removal of the object of a probe takes, also if the context of the probe has ended.
const probeLimit = 10 * time.Second

// Probe writes an object below probe/, and tests that a Bucket keeps the conditions of Swap: it must not replace the object if it exists
// already, or is another version. Otherwise the error is ErrNoConditions. The object is deleted afterwards.
func Probe(ctx context.Context, b Bucket) (err error) {
	name := "probe/" + rand.Text()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeLimit)
		defer cancel()
		if deleted := b.DeleteSwapped(ctx, name); err == nil {
			err = deleted
		}
	}()
	first, err := mustSwap(ctx, b, name, []byte("1"), "")
	if err != nil {
		return err
	}
	if err := mustFail(ctx, b, name, "", "an object that exists was created again"); err != nil {
		return err
	}
	content := []byte("2")
	second, err := mustSwap(ctx, b, name, content, first)
	if err != nil {
		return err
	}
	if err := mustFail(ctx, b, name, first, "an object was replaced that is not the version of the request any more"); err != nil {
		return err
	}
	found, tag, err := b.Load(ctx, name)
	if err == nil && (!bytes.Equal(found, content) || tag != second) {
		err = fmt.Errorf("%w: a request that was refused has changed the object %s", ErrNoConditions, name)
	}
	return err
}

// mustSwap makes a Swap that must not get ErrChanged.
func mustSwap(ctx context.Context, b Bucket, name string, content []byte, tag string) (newTag string, err error) {
	newTag, err = b.Swap(ctx, name, content, tag)
	if errors.Is(err, ErrChanged) {
		err = fmt.Errorf("%w: a request was refused although its condition holds (%s)", ErrNoConditions, name)
	}
	return newTag, err
}

// mustFail makes a Swap that must get ErrChanged.
func mustFail(ctx context.Context, b Bucket, name, tag, otherwise string) error {
	switch _, err := b.Swap(ctx, name, []byte("wrong"), tag); {
	case err == nil:
		return fmt.Errorf("%w: %s (%s)", ErrNoConditions, otherwise, name)
	case !errors.Is(err, ErrChanged):
		return err
	}
	return nil
}
