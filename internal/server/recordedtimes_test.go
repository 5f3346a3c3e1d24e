package server

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
)

// TestRecordedTimes checks the values of metrics of times. TestMetricsOfKubeAPIServer does not check values.
func TestRecordedTimes(t *testing.T) {
	s := start(t, testConfig(t))
	admin := httpClient(t, s, true)
	token := accountToken(t, s, "robot")
	stranger := httpClient(t, s, false)
	for range 2 {
		apitest.Send(t, stranger, "GET", s.URL()+"/api", "", "Authorization", "Bearer "+token)
	}
	post(t, s, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"sizes.example.com"},"spec":{
		"group":"example.com","scope":"Cluster","names":{"plural":"sizes","kind":"Size"},"versions":[{"name":"v1","served":true,
		"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"size":{"type":"integer",
		"x-kubernetes-validations":[{"rule":"self > 0"}]}}}}}]}}`, http.StatusCreated)
	wait.Until(t, "the custom resource is served", func() bool {
		return apitest.Send(t, admin, "GET", s.URL()+"/apis/example.com/v1/sizes", "").Status == http.StatusOK
	})
	post(t, s, "/apis/example.com/v1/sizes",
		`{"apiVersion":"example.com/v1","kind":"Size","metadata":{"name":"a"},"size":1}`, http.StatusCreated)
	shown := apitest.Send(t, admin, "GET", s.URL()+"/metrics", "").Body
	for series, least := range map[string]float64{
		"apiserver_cel_compilation_duration_seconds_count":                         1,
		"apiserver_cel_evaluation_duration_seconds_count":                          1,
		`authentication_token_cache_request_duration_seconds_count{status="miss"}`: 1,
		`authentication_token_cache_request_duration_seconds_count{status="hit"}`:  1,
		`authentication_token_cache_fetch_total{status="ok"}`:                      1,
		`authentication_token_cache_active_fetch_count{status="in_flight"}`:        0,
		`authentication_token_cache_active_fetch_count{status="blocked"}`:          0,
	} {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(shown)
		if found == nil {
			t.Errorf("%s is not served", series)
			continue
		}
		if n, err := strconv.ParseFloat(found[1], 64); err != nil || n < least || least == 0 && n != 0 {
			t.Errorf("%s is %s, want %v", series, found[1], least)
		}
	}
}
