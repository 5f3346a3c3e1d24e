package config

// API selects the parts of the API that are served.
type API struct {
	// FeatureGates are values of the form Name=true, also several with commas between them. The defaults are those of
	// kube-apiserver (--feature-gates).
	FeatureGates []string `flag:"feature-gates"`
	// RuntimeConfig are values of the form apps/v1=true, also several with commas between them: the built-in versions and
	// resources that are served or not. The defaults are those of kube-apiserver (--runtime-config).
	RuntimeConfig []string `flag:"runtime-config"`
}
