// Package goaway closes the HTTP/2 connections of random clients (GOAWAY), so that clients
// behind a load balancer spread over all servers. Requests that are in flight on such a
// connection are finished.
package goaway

import (
	"math/rand/v2"
	"net/http"

	"github.com/keelson-dev/keelson/config"
)

// maxChance is the largest chance allowed: one request in fifty.
const maxChance = 0.02

// Validate returns an error if chance is out of range.
func Validate(chance float64) error {
	if chance < 0 || chance > maxChance {
		return config.Errorf("{Requests.GoawayChance} can not be less than 0 or greater than 0.02")
	}
	return nil
}

// New returns the filter, nil if chance is 0. chance is the fraction of requests whose
// connection gets a GOAWAY. random returns numbers in [0,1); nil stands for rand.Float64.
func New(chance float64, random func() float64) func(http.Handler) http.Handler {
	if chance <= 0 {
		return nil
	}
	if random == nil {
		random = rand.Float64
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && random() < chance {
				w.Header().Set("Connection", "close") // net/http sends GOAWAY for this
			}
			next.ServeHTTP(w, r)
		})
	}
}
