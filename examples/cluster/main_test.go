package main

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/config"
)

// TestMissingProgram: without the programs the command says what is missing. With them TestWorkloads in test/e2e runs it.
func TestMissingProgram(t *testing.T) {
	err := run(t.Context(), t.TempDir(), t.TempDir(), config.FreePort)
	if err == nil || !strings.HasPrefix(err.Error(), "kube-controller-manager is needed: ") {
		t.Errorf("the error is %v", err)
	}
}

func TestNodes(t *testing.T) {
	s := keelson.ForTest(t)
	if err := s.LoadFS(t.Context(), files, "nodes.yaml"); err != nil {
		t.Error(err)
	}
}
