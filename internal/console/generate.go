package console

//go:generate go run -C ../../packaging/tools ./console --app ../../internal/console/app --dist ../../internal/console/dist
