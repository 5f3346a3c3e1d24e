//go:build unix && !linux

package takeover

import "errors"

func mount(string) error { return errors.ErrUnsupported }

func unmount(string) error { return nil }
