package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDeletionFigures measures how long a server alone takes to delete the dependents of an owner, and a namespace, and
// how much processor time and memory that costs. It prints figures and fails only if something stays.
// KEELSON_DEPENDENTS is the number of dependents.
func TestDeletionFigures(t *testing.T) {
	if os.Getenv("KEELSON_FIGURES") == "" {
		t.Skip("KEELSON_FIGURES is not set")
	}
	dir := logDir(t)
	s := &graphServer{apiServer: keelsonOn(t, dir, "--storage", "embedded", "--controllers", "*"), uids: map[*graphObject]string{}}
	t.Run("dependents", s.dependentsFigures)
	t.Run("namespace", s.namespaceFigures)
}

// createAll creates objects in parallel; path and body return the path and the body of each.
func (s *graphServer) createAll(t *testing.T, number int, path func(int) string, body func(int) any) {
	t.Helper()
	var group sync.WaitGroup
	next := make(chan int)
	for range 32 {
		group.Go(func() {
			for i := range next {
				if err := s.send(t.Context(), http.MethodPost, path(i), jsonType, body(i), nil, http.StatusCreated); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range number {
		next <- i
	}
	close(next)
	group.Wait()
}

func (s *graphServer) dependentsFigures(t *testing.T) {
	number := numberFrom(t, "KEELSON_DEPENDENTS", 100_000)
	s.createNamespace(t, "dependents")
	const path = "/api/v1/namespaces/dependents/configmaps"
	var owner metav1.PartialObjectMetadata
	object := map[string]any{"metadata": map[string]any{"name": "owner"}}
	if err := s.send(t.Context(), http.MethodPost, path, jsonType, object, &owner, http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	s.createAll(t, number, func(int) string { return path }, func(i int) any {
		return map[string]any{"data": map[string]any{"key": "value"}, "metadata": map[string]any{
			"name": fmt.Sprint("dependent-", i), "ownerReferences": []any{map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.UID, "blockOwnerDeletion": true,
			}}}}
	})
	m := s.measure(t)
	if err := s.send(t.Context(), http.MethodDelete, path+"/owner", "", nil, nil, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	s.awaitEmpty(t, path+"?limit=2", 1) // kube-root-ca.crt stays
	m.report(t, fmt.Sprintf("%d dependents", number))
}

func (s *graphServer) namespaceFigures(t *testing.T) {
	const kinds, number = 60, 10_000
	for i := range kinds {
		plural := fmt.Sprintf("things%d", i)
		definition := map[string]any{
			"metadata": map[string]any{"name": plural + ".figures.example.com"},
			"spec": map[string]any{
				"group": "figures.example.com", "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "kind": fmt.Sprintf("Thing%d", i)},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			},
		}
		if err := s.send(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonType,
			definition, nil, http.StatusCreated); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("/apis/figures.example.com/v1/things%d", kinds-1)
	eventually(t, time.Minute, "all kinds are served", func(ctx context.Context) error {
		return s.send(ctx, http.MethodGet, last, "", nil, nil, http.StatusOK)
	})
	s.createNamespace(t, "full")
	s.createAll(t, number, func(i int) string {
		return fmt.Sprintf("/apis/figures.example.com/v1/namespaces/full/things%d", i%kinds)
	}, func(i int) any {
		return map[string]any{
			"apiVersion": "figures.example.com/v1", "kind": fmt.Sprintf("Thing%d", i%kinds),
			"metadata": map[string]any{"name": fmt.Sprint("object-", i)}, "spec": map[string]any{"key": "value"},
		}
	})
	m := s.measure(t)
	if err := s.send(t.Context(), http.MethodDelete, "/api/v1/namespaces/full", "", nil, nil, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Minute, "the namespace is gone", func(ctx context.Context) error {
		return s.send(ctx, http.MethodGet, "/api/v1/namespaces/full", "", nil, nil, http.StatusNotFound)
	})
	m.report(t, fmt.Sprintf("a namespace with %d objects of %d kinds", number, kinds))
}

// awaitEmpty waits until a list has at most some objects.
func (s *graphServer) awaitEmpty(t *testing.T, path string, most int) {
	t.Helper()
	eventually(t, 10*time.Minute, "the objects are gone", func(ctx context.Context) error {
		_, body, err := s.call(ctx, http.MethodGet, path, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "", nil)
		if err != nil {
			return err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		if len(list.Items) > most {
			return fmt.Errorf("there are %d and %v more", len(list.Items), list.RemainingItemCount)
		}
		return nil
	})
}

// measurement is a measurement of a server that is going on.
type measurement struct {
	s      *graphServer
	began  time.Time
	cpu    time.Duration
	memory int // before, in KiB
	stop   chan struct{}
	most   chan int // receives the largest memory
}

// measure begins to measure, after the server has been idle for some seconds.
func (s *graphServer) measure(t *testing.T) *measurement {
	t.Helper()
	const rest, look = 10 * time.Second, 50 * time.Millisecond
	time.Sleep(rest)
	m := &measurement{
		s: s, began: time.Now(), cpu: s.cpu(t), memory: s.resident(), stop: make(chan struct{}), most: make(chan int, 1),
	}
	go func() {
		most := 0
		for {
			most = max(most, s.resident())
			select {
			case <-m.stop:
				m.most <- most
				return
			case <-time.After(look):
			}
		}
	}()
	return m
}

func (m *measurement) report(t *testing.T, what string) {
	t.Helper()
	took, cpu := time.Since(m.began), m.s.cpu(t)-m.cpu
	close(m.stop)
	most := <-m.most
	t.Logf("%s: gone after %v; %v of processor time; resident memory %d MiB before, at most %d MiB meanwhile (%+d MiB)",
		what, took.Round(time.Millisecond), cpu, m.memory>>10, most>>10, (most-m.memory)>>10)
}

// resident returns the resident memory of the server in KiB, 0 if it cannot be read.
func (s *graphServer) resident() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "kB", 2)[0]))
	return n
}

// cpu returns the processor time of the server.
func (s *graphServer) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const user, system, tick = 11, 12, 10 * time.Millisecond // USER_HZ is 100
	var sum time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
