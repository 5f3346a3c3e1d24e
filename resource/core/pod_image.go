package core

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The grammar of image references (github.com/distribution/reference).
var (
	imageName = regexp.MustCompile(`^(?:` + imageDomain + `/)?` + imagePath + `(?:/` + imagePath + `)*$`)
	imageTag  = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
	imageID   = regexp.MustCompile(`^[a-f0-9]{64}$`)
	digests   = regexp.MustCompile(`^(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$`)
)

const (
	imageLabel  = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	imageDomain = `(?:` + imageLabel + `(?:\.` + imageLabel + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	imagePath   = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// pullPolicy is the default policy for an image: Always for the tag latest,
// which is implied where there is neither tag nor digest. What is no image
// reference has no tag.
func pullPolicy(image string) corev1.PullPolicy {
	if imageTagOf(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func imageTagOf(image string) string {
	if imageID.MatchString(image) {
		return ""
	}
	name, digest, digested := strings.Cut(image, "@")
	if digested && !digests.MatchString(digest) {
		return ""
	}
	tag, tagged := "", false
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag, tagged = name[:colon], name[colon+1:], true
	}
	if tagged && !imageTag.MatchString(tag) || !imageName.MatchString(name) || len(familiarName(name)) > 255 {
		return ""
	}
	if !tagged && !digested {
		return "latest"
	}
	return tag
}

// familiarName is the full repository that a short name stands for: its length
// is what is limited. A first part that is no host belongs to the path.
func familiarName(name string) string {
	first, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first:
		return "docker.io/" + name
	}
	return name
}
