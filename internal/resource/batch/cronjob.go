package batch

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/resource/core"
	"github.com/keelson-dev/keelson/internal/resource/field"
	"github.com/keelson-dev/keelson/internal/resource/internal/declare"
)

// maxCronJobName leaves 11 of the 63 characters of a label for the suffix of the jobs' names.
const maxCronJobName = 52

func cronJob(gates core.PodGates) *registry.Kind {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return &registry.Kind{
		Names: registry.Names{
			Group: group, Package: "batch", Resource: "cronjobs", Singular: "cronjob", Name: "CronJob",
			ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
		},
		Versions: []registry.Version{declare.Version[batchv1.CronJob]("v1", defaultCronJob)},
		Storage:  registry.Storage{Version: "v1", Path: "cronjobs"},
		Requests: registry.Requests{UnconditionalUpdate: true},
		Metadata: registry.Metadata{
			ValidateName: func(name string, prefix bool) []string {
				return apivalidation.NameIsDNSSubdomain(name, prefix)
			},
			OnStatusUpdate: registry.MetaNothing,
		},
		Subresources: []registry.Subresource{declare.Status()},
		Strategy: registry.Strategy[*batchv1.CronJob]{
			Spec:       func(c *batchv1.CronJob) any { return &c.Spec },
			Status:     func(c *batchv1.CronJob) any { return &c.Status },
			Generation: true,
			PrepareCreate: func(_ context.Context, c *batchv1.CronJob) {
				gates.DropNew(&c.Spec.JobTemplate.Spec.Template.Spec)
			},
			PrepareUpdate: func(_ context.Context, c, old *batchv1.CronJob) {
				gates.Drop(&c.Spec.JobTemplate.Spec.Template.Spec, &old.Spec.JobTemplate.Spec.Template.Spec)
			},
			// The length of the name is only validated on create, so that objects with longer
			// names can still be updated.
			Validate: func(_ context.Context, c *batchv1.CronJob) field.ErrorList {
				errs := validateCronJob(c)
				if len(c.Name) > maxCronJobName {
					errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name,
						fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
				}
				return errs
			},
			ValidateUpdate: func(_ context.Context, c, _ *batchv1.CronJob) field.ErrorList {
				return validateCronJob(c)
			},
			Warn: func(_ context.Context, c, old *batchv1.CronJob) []string {
				path := field.NewPath("spec", "jobTemplate", "spec", "template")
				if old == nil {
					return append(declare.PodNameWarnings(c.Name),
						core.PodTemplateWarnings(path, &c.Spec.JobTemplate.Spec.Template, nil)...)
				}
				if c.Generation == old.Generation {
					return nil
				}
				return core.PodTemplateWarnings(path, &c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template)
			},
		}.Untyped(),
		Table: registry.Table[*batchv1.CronJob]{
			Columns: []metav1.TableColumnDefinition{
				core.NameColumn,
				declare.Column("Schedule", "string", spec["schedule"]),
				declare.Column("Timezone", "string", spec["timeZone"]),
				declare.Column("Suspend", "boolean", spec["suspend"]),
				declare.Column("Active", "integer", status["active"]),
				declare.Column("Last Schedule", "string", status["lastScheduleTime"]),
				core.AgeColumn,
				declare.Wide("Containers", "string", "Names of each container in the template."),
				declare.Wide("Images", "string", "Images referenced by each container in the template."),
				declare.Wide("Selector", "string", batchv1.JobSpec{}.SwaggerDoc()["selector"]),
			},
			Cells: declare.Cells(cronJobCells),
		}.Untyped(),
	}
}

func defaultCronJob(c *batchv1.CronJob) {
	declare.Value(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	declare.Pointer(&c.Spec.Suspend, false)
	declare.Pointer(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	declare.Pointer(&c.Spec.FailedJobsHistoryLimit, 1)
	// The defaults of the job template are set when the job is created.
	template := &c.Spec.JobTemplate.Spec
	defaultPodFailurePolicy(template.PodFailurePolicy)
	core.DefaultPodTemplate(&template.Template)
}

func cronJobCells(c *batchv1.CronJob) []any {
	zone, suspend, selector := core.None, core.Unset, core.None
	var last any = core.None
	if c.Spec.TimeZone != nil {
		zone = *c.Spec.TimeZone
	}
	if s := c.Spec.Suspend; s != nil {
		suspend = map[bool]string{true: "True", false: "False"}[*s]
	}
	if t := c.Status.LastScheduleTime; t != nil {
		last = core.Age(*t)
	}
	template := &c.Spec.JobTemplate.Spec
	if template.Selector != nil {
		selector = metav1.FormatLabelSelector(template.Selector)
	}
	names, images := core.ContainerNames(&template.Template.Spec)
	return []any{
		c.Name, c.Spec.Schedule, zone, suspend, int64(len(c.Status.Active)), last, core.Age(c.CreationTimestamp),
		names, images, selector,
	}
}
