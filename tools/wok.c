/* wok.c - the `wok` command: picks the sub-command. */
#include "cmd.h"

#include <string.h>

static const cmd commands[] = {
#define CMD(name, usage, text) {#name, usage, text, cmd_##name},
#include "cmd.def"
#undef CMD
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void help(FILE *out) {
    fprintf(out, "usage: wok COMMAND ...\n\n"
                 "wok runs BERT, DistilBERT, ResNet-18, MobileNetV2 and their kin from ONNX and safetensors files.\n\n"
                 "commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-11s %-40s %s\n", commands[i].name, commands[i].usage, commands[i].text);
    fprintf(out,
            "\n`wok COMMAND --help` lists a command's options. `wok --version` prints the version.\n\n"
            "try:\n"
            "  wok info model.onnx                          what a file holds\n"
            "  wok run model.onnx -i x=x.npy -o out         run it; out/NAME.npy gets each output\n"
            "  wok explain model.onnx                       which kernels run, and why\n"
            "  wok embed minilm/ 'a cat' 'a dog' 'a car'    how alike sentences are\n"
            "  wok classify digits.onnx picture.png         what a picture shows\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help(stdout);
        return 0;
    }
    if (!strcmp(name, "--version")) {
        printf("wok %s\n", wok_version());
        return 0;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    return cmd_usage(NULL, "there is no command `%s`", name);
}
