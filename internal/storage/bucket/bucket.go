// Package bucket stores objects by name in a place outside of the data directory: a directory, or a bucket of an S3 service.
//
// bucket.go has the interface and Open. directory.go and versions.go are the directory, s3.go and the files that begin with s3 are the
// bucket of an S3 service. probe.go tests whether a service can be used. Package buckettest has the tests that every Bucket passes.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

var (
	// ErrNotFound is the error of Bucket.Get and Bucket.Load if there is no object of that name.
	ErrNotFound = errors.New("there is no such object in the bucket")
	// ErrChanged is the error of Bucket.Swap if the object is not the one that the caller has seen. Nothing was written.
	ErrChanged = errors.New("the object in the bucket was changed by another writer")
	// ErrNoConditions is the error of Probe, and of Bucket.Swap if it can be known, if the service does not keep the conditions of
	// a request. Two writers could destroy each other's objects there.
	ErrNoConditions = errors.New("the service does not keep the conditions If-Match and If-None-Match of a PUT request; " +
		"use another service or a newer version of it")
)

// MaxSwapped is the size in bytes of the largest content of Bucket.Swap.
const MaxSwapped = 1 << 20

// Bucket is a set of objects. The parts of a name are separated by slashes; a part has up to 200 letters, digits and characters of
// "-_.=", does not begin with a dot, and does not end with .unfinished, .versions or .swapped; a name has up to 400 bytes. A name must
// not be the first parts of another one. All methods may be called concurrently, also by several processes, and end with an error when
// ctx ends. (A call to a file system cannot be ended: if a directory is on a network file system that does not answer, they wait.)
//
// The objects of Put and those of Swap are apart: Get and List do not see the ones of Swap, Load does not see the ones of Put.
type Bucket interface {
	// Put makes an object of what write writes, and replaces one that is there. When it returns nil, the object is complete and
	// durable. After an error there may be the complete object, the one before, or none, but never a part of one. write may be
	// called again, if a try to store the object has failed.
	Put(ctx context.Context, name string, write func(io.Writer) error) error
	// Get opens an object for reading. The caller closes it. Reading fails when ctx ends, and if a part of the object is missing.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects in ascending order of their names, without those that Swap has written. What has a name that an object
	// cannot have is left out.
	List(ctx context.Context) ([]Object, error)
	// Delete removes an object of Put. It is no error if there is none.
	Delete(ctx context.Context, name string) error

	// Load returns a small object that Swap has written, and a tag that no other version of it has.
	Load(ctx context.Context, name string) (content []byte, tag string, err error)
	// Swap replaces a small object if it is still the version with the tag, or makes it if tag is "" and there is none. Of several
	// writers that have seen the same version, at most one succeeds; the others get ErrChanged. After another error it is not known
	// whether the object was replaced. The content has at most MaxSwapped bytes.
	Swap(ctx context.Context, name string, content []byte, tag string) (newTag string, err error)
	// DeleteSwapped removes an object of Swap. It is no error if there is none. It must not be called while another writer calls Swap
	// for that name.
	DeleteSwapped(ctx context.Context, name string) error
}

// Object is an object in a bucket.
type Object struct {
	Name string
	Size int64 // in bytes
}

// Options are the settings of a bucket of an S3 service. A directory needs none.
//
// The credentials are found as every program of AWS finds them: in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the shared files
// (AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE), by a web identity token (AWS_ROLE_ARN, AWS_WEB_IDENTITY_TOKEN_FILE), or from the metadata
// service of the container or the machine. They are read again every five minutes, so a changed file needs no restart.
type Options struct {
	// Endpoint is the URL of the service, https://HOST:PORT or http://HOST:PORT. If it is empty, the service is AWS.
	Endpoint string
	// Region is the region of the bucket. If it is empty, it is the one of the environment (AWS_REGION) or of the shared files, and
	// with an Endpoint us-east-1, which most other services take.
	Region string
	// VirtualHost makes requests to an Endpoint name the bucket in the host name (BUCKET.HOST) and not in the path, which all services
	// but a few accept. Requests to AWS always name it in the host name.
	VirtualHost bool
	// CAFile is a file of certificates in PEM. The certificate of the service may be signed by one of them, or by one that the
	// system trusts.
	CAFile string
}

// schemeS3 is how the URL of a bucket of an S3 service begins.
const schemeS3 = "s3://"

// Open returns the bucket of a URL: s3://BUCKET/PREFIX for the objects below a prefix in a bucket of an S3 service (PREFIX may be
// missing), else the path of a directory, which is made if it does not exist. It sends nothing to an S3 service, so it does not fail if
// that cannot be reached. The caller calls closeBucket at the end. No error contains a secret.
func Open(ctx context.Context, url string, o Options) (b Bucket, closeBucket func() error, err error) {
	if rest, ok := strings.CutPrefix(url, schemeS3); ok {
		name, prefix, err := parseS3(rest)
		if err != nil {
			return nil, nil, err
		}
		return openS3(ctx, name, prefix, o, nil)
	}
	switch {
	case url == "":
		return nil, nil, errors.New("the bucket has no address: want the path of a directory, or s3://BUCKET/PREFIX")
	case strings.Contains(url, "://"): // the URL is not in the message: it could have a password
		return nil, nil, errors.New("the address of the bucket has an unknown scheme: want the path of a directory, or s3://BUCKET/PREFIX")
	case o != Options{}:
		return nil, nil, fmt.Errorf("the bucket %s is a directory, for which there are no settings of S3", url)
	}
	return OpenDirectory(url)
}

const (
	// maxName, maxPart and maxPrefix leave room for what the implementations add: a key of S3 has at most 1024 bytes, the name of a file
	// mostly 255.
	maxName, maxPart, maxPrefix = 400, 200, 400

	// These endings are reserved: for a file that is being written, or that a killed process has left; for the folder with the versions of
	// an object of Swap in a directory; for an object of Swap in a bucket of S3.
	unfinished, versionsDir, swapped = ".unfinished", ".versions", ".swapped"

	partCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.="
)

// checkName returns an error if an object cannot have a name.
func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the name of the object %.40q... is longer than %d bytes", name, maxName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if !validPart(part) {
			return fmt.Errorf("an object cannot have the name %q", name)
		}
	}
	return nil
}

func validPart(part string) bool {
	return part != "" && len(part) <= maxPart && part[0] != '.' && strings.Trim(part, partCharacters) == "" &&
		!strings.HasSuffix(part, unfinished) && !strings.HasSuffix(part, versionsDir) && !strings.HasSuffix(part, swapped)
}

// objectError is the error of a method, with the object and the bucket.
func objectError(doing, name, bucket string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the object %s of the bucket %s: %w", doing, name, bucket, err)
}
