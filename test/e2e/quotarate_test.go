package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// quotaWriters is how many clients race for a quota.
const quotaWriters = 64

// TestQuotaRate has 64 writers create ConfigMaps in one namespace, through two servers, until the quota of the namespace
// is used up. Exactly as many must be created as the quota allows. It prints how many are created each second before
// that, and without a quota; kube-apiserver runs for comparison.
func TestQuotaRate(t *testing.T) {
	dir := logDir(t)
	for _, c := range []struct {
		name  string
		start func() []*apiServer
	}{
		{"kube-apiserver on etcd", func() []*apiServer {
			e := startEtcd(t, dir)
			return []*apiServer{kubeAPIServer(t, dir, e), kubeAPIServer(t, dir, e)}
		}},
		{"Keelson on etcd", func() []*apiServer {
			args := []string{"--storage", "etcd", "--etcd-servers", startEtcd(t, dir).url, "--quota-usage=false"}
			return []*apiServer{keelsonOn(t, dir, args...), keelsonOn(t, dir, args...)}
		}},
		{"Keelson", func() []*apiServer { return []*apiServer{keelsonOn(t, dir, "--quota-usage=false")} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers := c.start()
			servers[0].namespace(t, "free")
			free := createConfigMaps(t, servers, "free", 4000)
			servers[0].namespace(t, "limited")
			const limit = 4000
			makeQuota(t, servers[0], "limited", limit)
			limited := createConfigMaps(t, servers, "limited", limit+500)
			if limited.created != limit || free.created != 4000 {
				t.Errorf("%d created with a quota of %d, %d without", limited.created, limit, free.created)
			}
			t.Logf("created each second: %.0f without a quota, %.0f with one (%d requests were answered 409 and sent again)",
				free.rate, limited.rate, limited.conflicts)
			for _, s := range servers {
				s.kill()
			}
		})
	}
}

// makeQuota creates a quota of ConfigMaps with the status that a controller would write.
func makeQuota(t *testing.T, s *apiServer, namespace string, limit int) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"%[1]d"}},`+
		`"status":{"hard":{"count/configmaps":"%[1]d"},"used":{"count/configmaps":"0"}}}`, limit)
	path := "/api/v1/namespaces/" + namespace + "/resourcequotas"
	s.must(t, http.MethodPost, path, jsonType, jsonType, []byte(body))
	s.must(t, http.MethodPut, path+"/q/status", jsonType, jsonType, []byte(body))
}

// created is the result of createConfigMaps.
type created struct {
	created, conflicts int
	rate               float64 // created each second, until half of the requests have succeeded
}

// createConfigMaps sends a number of creates by quotaWriters clients, spread over the servers.
func createConfigMaps(t *testing.T, servers []*apiServer, namespace string, requests int) created {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	data, err := json.Marshal(map[string]string{"a": "some data that is not very long"})
	if err != nil {
		t.Fatal(err)
	}
	var sent, made, conflicts atomic.Int64
	var half atomic.Pointer[time.Duration]
	began := time.Now()
	var wg sync.WaitGroup
	for i := range quotaWriters {
		wg.Go(func() {
			s, n, status := servers[i%len(servers)], int64(0), 0
			for {
				if status != http.StatusConflict {
					n = sent.Add(1)
				}
				if n > int64(requests) {
					return
				}
				body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":%s}`, n, data)
				var answer []byte
				var err error
				status, answer, err = s.call(
					ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", jsonType, jsonType, body)
				switch {
				case err == nil && status == http.StatusCreated:
					if made.Add(1) == int64(requests/2) {
						took := time.Since(began)
						half.Store(&took)
					}
				case err == nil && status == http.StatusConflict:
					conflicts.Add(1) // kube-apiserver gives up when it has lost the race for the quota too often
				case err != nil || status != http.StatusForbidden:
					t.Errorf("%d %s %v", status, answer, err)
					return
				}
			}
		})
	}
	wg.Wait()
	out := created{created: int(made.Load()), conflicts: int(conflicts.Load())}
	if took := half.Load(); took != nil {
		out.rate = float64(requests/2) / took.Seconds()
	}
	return out
}
