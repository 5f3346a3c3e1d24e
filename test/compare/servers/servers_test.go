package servers

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestProgramThatEnds: the error has what the program printed, and nothing is left behind.
func TestProgramThatEnds(t *testing.T) {
	program := t.TempDir() + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"no $3\"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("this system has no /bin/sh")
	}
	g, err := NewGroup(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.KubeAPIServer(t.Context(), program, program); err == nil || !strings.Contains(err.Error(), "no --secure-port") {
		t.Errorf("error %v", err)
	}
	if _, err := g.Keelson(t.Context(), program); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("error %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there", g.dir)
	}
}

func TestSettings(t *testing.T) {
	g, err := NewGroup(Settings{Emulated: "1.36", AllAlpha: true, Gates: "A=false"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	args := g.common(1)
	for _, want := range []string{"kube=1.36", "AllAlpha=true,AllBeta=true,A=false", "api/all=true"} {
		if !slices.Contains(args, want) {
			t.Errorf("%v do not have %s", args, want)
		}
	}
}
