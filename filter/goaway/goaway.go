// Package goaway sends some HTTP/2 clients away, so that behind a load balancer
// they find another server in time. What they have under way goes on.
package goaway

import (
	"errors"
	"math/rand/v2"
	"net/http"
)

// maxChance is the largest chance that may be given: one request in fifty.
const maxChance = 0.02

// Validate returns what is wrong with a chance.
func Validate(chance float64) error {
	if chance < 0 || chance > maxChance {
		return errors.New("--goaway-chance can not be less than 0 or greater than 0.02")
	}
	return nil
}

// New returns the filter, nil for no chance. It is the fraction of requests whose
// connection ends when it is idle. random returns numbers in [0,1); nil is
// rand.Float64.
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
				w.Header().Set("Connection", "close") // GOAWAY, in HTTP/2
			}
			next.ServeHTTP(w, r)
		})
	}
}
