package server

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
)

// TestRecordedTimes checks metrics of times whose values TestMetricsOfKubeAPIServer does not look at.
func TestRecordedTimes(t *testing.T) {
	s := start(t, testConfig(t))
	admin := httpClient(t, s, true)
	token := accountToken(t, s, "robot")
	stranger := httpClient(t, s, false)
	for range 2 {
		call(t, stranger, "GET", s.URL()+"/api", "Authorization", "Bearer "+token)
	}
	post(t, s, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"sizes.example.com"},"spec":{
		"group":"example.com","scope":"Cluster","names":{"plural":"sizes","kind":"Size"},"versions":[{"name":"v1","served":true,
		"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"size":{"type":"integer",
		"x-kubernetes-validations":[{"rule":"self > 0"}]}}}}}]}}`, http.StatusCreated)
	eventually(t, "the custom resource is served", func() bool {
		return call(t, admin, "GET", s.URL()+"/apis/example.com/v1/sizes").status == http.StatusOK
	})
	post(t, s, "/apis/example.com/v1/sizes",
		`{"apiVersion":"example.com/v1","kind":"Size","metadata":{"name":"a"},"size":1}`, http.StatusCreated)
	shown := call(t, admin, "GET", s.URL()+"/metrics").body
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
