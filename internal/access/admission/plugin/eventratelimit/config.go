package eventratelimit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/access/admission/pluginconfig"
)

// LimitType selects the events that share a bucket.
type LimitType string

const (
	// Server is one bucket for all events.
	Server LimitType = "Server"
	// Namespace is a bucket for each namespace.
	Namespace LimitType = "Namespace"
	// User is a bucket for each user who writes events.
	User LimitType = "User"
	// SourceAndObject is a bucket for each pair of the source of an event and the object that it is about.
	SourceAndObject LimitType = "SourceAndObject"
)

// Config is the configuration of the plug-in.
type Config struct {
	// Limits has at least one limit.
	Limits []Limit
}

// Limit is the limit of one type.
type Limit struct {
	Type LimitType `json:"type"`
	// QPS is the number of events that a bucket gets each second, Burst the largest number that it keeps. Both are
	// positive.
	QPS   int32 `json:"qps"`
	Burst int32 `json:"burst"`
	// CacheSize is the number of buckets that are kept; 0 stands for 4096. A bucket that was dropped is full again.
	CacheSize int32 `json:"cacheSize"`
}

// defaultCacheSize is the default number of buckets of a limit.
const defaultCacheSize = 4096

// configKind is the kind of a configuration.
var configKind = schema.GroupVersionKind{
	Group: "eventratelimit.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration",
}

// DecodeConfig decodes a configuration. nil is an error, because there has to be a limit.
func DecodeConfig(raw []byte) (Config, error) {
	var file struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []Limit `json:"limits"`
	}
	if raw != nil {
		if err := pluginconfig.Decode(raw, configKind, &file); err != nil {
			return Config{}, err
		}
	}
	c := Config{Limits: file.Limits}
	return c, c.validate().ToAggregate()
}

func (c *Config) validate() field.ErrorList {
	types := []LimitType{Namespace, Server, SourceAndObject, User}
	path := field.NewPath("limits")
	if len(c.Limits) == 0 {
		return field.ErrorList{field.Invalid(path, c.Limits, "must not be empty")}
	}
	var errs field.ErrorList
	for i, l := range c.Limits {
		at := path.Index(i)
		if !slices.Contains(types, l.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type, types))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != Server && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}
