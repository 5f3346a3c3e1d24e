package main

import (
	"bytes"
	"os"
	"testing"
)

// TestKnown compares what the command writes with what is committed.
func TestKnown(t *testing.T) {
	want, err := os.ReadFile("../../machinery/scheme/known.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := known(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("known.txt is not what the command writes: run go generate in internal/machinery/scheme (%v)", err)
	}
}
