package imagepolicy

import (
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/access/admission/pluginconfig"
)

// Config is the configuration of the plug-in.
type Config struct {
	// KubeConfigFile is the path of a kubeconfig with the address of the webhook and the server's credentials for
	// it.
	KubeConfigFile string
	// AllowTTL and DenyTTL are the times for which allowing and denying answers are cached; 0 means that they are
	// not cached. DecodeConfig sets 5 minutes and 30 seconds if nothing is configured.
	AllowTTL, DenyTTL time.Duration
	// RetryBackoff is the delay before the first retry of a call; half a second by default.
	RetryBackoff time.Duration
	// DefaultAllow allows pods when the webhook fails.
	DefaultAllow bool
}

// DecodeConfig decodes a configuration: the member imagePolicy with kubeConfigFile, defaultAllow, allowTTL and
// denyTTL in seconds, and retryBackoff in milliseconds. For a number, 0 or no value means the default, and -1
// means a duration of zero. nil is an error, because there has to be a webhook.
func DecodeConfig(raw []byte) (Config, error) {
	if raw == nil {
		return Config{}, errors.New("no config specified")
	}
	var file struct {
		ImagePolicy struct {
			KubeConfigFile string `json:"kubeConfigFile"`
			AllowTTL       int64  `json:"allowTTL"`
			DenyTTL        int64  `json:"denyTTL"`
			RetryBackoff   int64  `json:"retryBackoff"`
			DefaultAllow   bool   `json:"defaultAllow"`
		} `json:"imagePolicy"`
	}
	if err := pluginconfig.DecodeUnversioned(raw, &file); err != nil {
		return Config{}, err
	}
	p := &file.ImagePolicy
	c := Config{KubeConfigFile: p.KubeConfigFile, DefaultAllow: p.DefaultAllow}
	var errs [3]error
	c.RetryBackoff, errs[0] = durationOf(p.RetryBackoff, time.Millisecond, 1, 5*time.Minute, 500*time.Millisecond)
	c.AllowTTL, errs[1] = durationOf(p.AllowTTL, time.Second, time.Second, 30*time.Minute, 5*time.Minute)
	c.DenyTTL, errs[2] = durationOf(p.DenyTTL, time.Second, time.Second, 30*time.Minute, 30*time.Second)
	for i, name := range []string{"retryBackoff", "allowTTL", "denyTTL"} {
		if errs[i] != nil {
			return Config{}, fmt.Errorf("imagePolicy.%s: %w", name, errs[i])
		}
	}
	return c, nil
}

// durationOf returns n units as a duration. -1 means zero and 0 means byDefault; other numbers must lie between
// the two bounds.
func durationOf(n int64, unit, least, most, byDefault time.Duration) (time.Duration, error) {
	switch {
	case n == -1:
		return 0, nil
	case n == 0:
		return byDefault, nil
	case n < 0 || n > int64(most/unit) || time.Duration(n)*unit < least:
		return 0, fmt.Errorf("valid value is between %v and %v, got %d times %v", least, most, n, unit)
	}
	return time.Duration(n) * unit, nil
}
